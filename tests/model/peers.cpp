// Steps with another process, which exports memory, opens exports, and dies.
#include "world.h"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <initializer_list>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace model {
namespace {

struct Request {
    enum { to_export, to_end_export, to_open } what;
    size_t size;
    unsigned pattern;
    emm_ipc_handle handle;
};
struct Answer {
    emm_status status = EMM_E_PLUGIN_FAILED; // the answer of a process that has died meanwhile
    emm_ipc_handle handle = {};
};

template <class Message> bool receive(int from, Message &message) {
    return read(from, &message, sizeof message) == ssize_t(sizeof message);
}
template <class Message> bool send(int to, const Message &message) {
    return write(to, &message, sizeof message) == ssize_t(sizeof message);
}

} // namespace

struct Pipe {
    int fds[2] = {-1, -1};
    Pipe() {
        if (pipe2(fds, O_CLOEXEC) != 0) {
            throw Wrong("no pipe");
        }
    }
    ~Pipe() {
        close(fds[0]);
        close(fds[1]);
    }
    Pipe(const Pipe &) = delete;
    Pipe &operator=(const Pipe &) = delete;
};

// The other process.
struct Peer {
    Pipe requests, answers;
    pid_t pid = 0;

    Peer() {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, requests.fds[0], STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, answers.fds[1], STDOUT_FILENO);
        char name[] = "model", mode[] = "peer";
        char *arguments[] = {name, mode, nullptr};
        const int failed =
            posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
        if (failed) {
            throw Wrong("no peer");
        }
        close(std::exchange(answers.fds[1], -1)); // so that the peer's end is the answers' end
    }
    ~Peer() { kill(); }
    void kill() {
        if (pid) {
            ::kill(pid, SIGKILL);
            waitpid(std::exchange(pid, 0), nullptr, 0);
        }
    }
    // Throws if the peer has ended, or if a failure is not allowed.
    Answer ask(const Request &request, std::initializer_list<emm_status> may_be = {}) const {
        Answer answer;
        if (!send(requests.fds[1], request) || !receive(answers.fds[0], answer) ||
            (answer.status < EMM_OK &&
             std::count(may_be.begin(), may_be.end(), answer.status) == 0)) {
            throw Wrong("the peer has failed: " + std::to_string(answer.status));
        }
        return answer;
    }
};

int run_peer() {
    const Driver driver;
    emm_context *context = nullptr;
    auto info = sized<emm_context_info>();
    check(emm_context_for_device(0, &context), "emm_context_for_device");
    check(emm_context_get_info(context, &info), "emm_context_get_info");
    ::check(driver.cuCtxSetCurrent(info.cuda_context), "cuCtxSetCurrent");
    emm_memory *opened = nullptr; // the last one
    for (Request request = {}; receive(STDIN_FILENO, request);) {
        Answer answer;
        if (request.what == Request::to_export) {
            emm_memory *memory = nullptr; // kept
            auto made = sized<emm_memory_info>();
            answer.status = emm_memory_alloc(context, request.size, EMM_STREAM_LEGACY, &memory);
            if (answer.status >= EMM_OK) {
                check(emm_memory_get_info(memory, &made), "emm_memory_get_info");
                write_ends(driver, Ends(made.ptr, request.size), request.pattern, nullptr);
                ::check(driver.cuCtxSynchronize(), "cuCtxSynchronize");
                answer.status = emm_memory_export(memory, &answer.handle);
            }
        } else if (request.what == Request::to_end_export) {
            answer.status = emm_release_ipc_handle(context, &request.handle);
        } else {
            check(emm_memory_release(std::exchange(opened, nullptr)), "the close before");
            answer.status = emm_memory_open_ipc(context, &request.handle, &opened);
        }
        if (!send(STDOUT_FILENO, answer)) {
            break;
        }
    }
    return 0;
}

namespace {

const Peer &peer_of(World &world) {
    if (!world.peer) {
        world.peer = std::make_shared<Peer>();
    }
    return *world.peer;
}

void ask_for_export(World &world) {
    if (world.offers.size() == 4) {
        world.offers.erase(world.offers.begin());
    }
    auto offer = std::make_shared<Offer>();
    offer->size = world.chance.size();
    offer->pattern = world.next_pattern();
    const Answer answer = peer_of(world).ask(
        {Request::to_export, offer->size, offer->pattern, {}},
        {EMM_E_NOT_SUPPORTED, world.settings.tight ? EMM_E_OUT_OF_MEMORY : EMM_E_NOT_SUPPORTED});
    if (answer.status >= EMM_OK) {
        offer->handle = answer.handle;
        world.offers.push_back(offer);
    }
}

void end_export(World &world) {
    if (!world.offers.empty()) {
        Offer &offer = *world.offers[world.below(world.offers.size())];
        if (!std::exchange(offer.is_over, true)) {
            peer_of(world).ask({Request::to_end_export, 0, 0, offer.handle});
        }
    }
}

// Open imports stay open.
void kill_peer(World &world) {
    world.peer.reset();
    for (const auto &offer : world.offers) {
        offer->is_over = true;
    }
}

// A second opening gives the same memory.
void open(World &world) {
    const size_t number = world.any_place();
    if (world.offers.empty() || world.places[number].device != 0) {
        return;
    }
    const size_t pool = world.any_pool(number);
    const std::shared_ptr<Offer> offer = world.offers[world.below(world.offers.size())];
    Block *known = nullptr;
    bool is_elsewhere = false; // something is, perhaps in the same block of the driver's
    for (const auto &block : world.blocks) {
        known = block->offer == offer ? block.get() : known;
        is_elsewhere |=
            block->kind == Kind::opened && !(block->context == number && block->pool == pool);
    }
    if (known && (known->context != number || known->home->capture)) {
        return;
    }
    emm_memory *memory = nullptr;
    const emm_status status = world.call(world.any_hand(), [&] {
        return emm_memory_open_ipc(world.places[number].pool(pool), &offer->handle, &memory);
    });
    if (offer->is_over) {
        return world.refused(status, EMM_E_NOT_OWNED, "an export that is over");
    }
    const bool by_sibling = known && known->pool != pool; // a reset of that pool would close it
    if (by_sibling && offer->handle.kind != EMM_IPC_FILE_DESCRIPTOR) {
        return world.refused(status, EMM_E_BUSY, "an export that another pool has open");
    }
    if (!world.done(status, "emm_memory_open_ipc", is_elsewhere ? EMM_E_BUSY : EMM_OK)) {
        return;
    }
    auto info = sized<emm_memory_info>();
    check(emm_memory_get_info(memory, &info), "emm_memory_get_info");
    if (info.kind != EMM_KIND_IPC || info.size != offer->size ||
        (known && !by_sibling && info.ptr != known->ptr)) {
        throw Wrong("a handle tells of other memory than was exported");
    }
    if (known) { // another handle of the same memory; the first is gone
        world.done(world.call(world.any_hand(), [&] { return emm_memory_release(memory); }),
                   "the release of a second handle");
        return;
    }
    Block block;
    block.context = number;
    block.pool = pool;
    block.kind = Kind::opened;
    block.size = offer->size;
    block.ptr = info.ptr;
    block.by_handle = true;
    block.references = {memory};
    block.home = &world.any_stream(number);
    block.offer = offer;
    block.pattern = std::exchange(offer->pattern, 0); // until a later use
    say("    0x%llx, %zu bytes", block.ptr, block.size);
    world.model.allocated(account_of(number, pool), Kind::opened, block.ptr, block.size);
    world.blocks.push_back(std::make_unique<Block>(block));
    world.look(*world.blocks.back());
}

// The peer opens the block, and may die. An exported block is not freed.
void export_to_peer(World &world) {
    Block *const block = world.any_usable([](const Block &each) {
        return each.by_handle && each.is_plain() && each.kind == Kind::device;
    });
    if (!block || world.places[block->context].device != 0) {
        return;
    }
    emm_memory *const memory = block->references[0];
    emm_context *const context = world.pool_of(*block);
    emm_ipc_handle handle = {};
    const emm_status status =
        world.call(world.any_hand(), [&] { return emm_memory_export(memory, &handle); });
    if (status == EMM_E_NOT_SUPPORTED || !world.done(status, "emm_memory_export")) {
        return;
    }
    peer_of(world).ask({Request::to_open, 0, 0, handle});
    world.refused(world.call(world.any_hand(), [&] { return emm_memory_free(memory); }), EMM_E_BUSY,
                  "a free of what is exported");
    if (world.one_in(2)) {
        kill_peer(world);
    }
    world.carry_out(
        world.any_hand(), [&] { return emm_release_ipc_handle(context, &handle); },
        "emm_release_ipc_handle");
}

} // namespace

const std::vector<Action> peer_actions = {
    {"ask a peer for an export", 8, &Settings::peers, &ask_for_export},
    {"open", 16, &Settings::peers, &open},
    {"export to a peer", 4, &Settings::peers, &export_to_peer},
    {"end an export", 2, &Settings::peers, &end_export},
    {"kill the peer", 1, &Settings::peers, &kill_peer},
};

} // namespace model
