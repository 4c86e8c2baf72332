// sharing DRIVER INTERPOSER PLUGIN: memory between two processes that know cuIpc* and no emm. Each
// is this program once more, natively on the driver in the folder DRIVER, or under the interposer
// with its memory from PLUGIN. Checks CUDA's promises for such memory, whichever process is which.
#include "sharing_peer.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <unistd.h>

using namespace sharing;

namespace {

constexpr size_t KiB = 1 << 10, MiB = KiB << 10;

const char *driver_folder, *interposer_folder, *plugin;

#define CHECK(condition)                                                                           \
    if (!(condition)) {                                                                            \
        std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);               \
        std::_Exit(1);                                                                             \
    }

std::vector<std::string> natively() {
    return {std::string("LD_LIBRARY_PATH=") + driver_folder};
}

std::vector<std::string> under_emm() {
    const std::string folder = interposer_folder;
    return {"LD_LIBRARY_PATH=" + folder, "LD_PRELOAD=" + folder + "/libcuda.so.1",
            std::string("EMM_DRIVER=") + driver_folder + "/libcuda.so.1",
            std::string("EMM_PLUGIN=") + plugin};
}

bool is_name(const CUipcMemHandle &handle) {
    return std::memcmp(handle.reserved, "emm-ipc", 7) == 0;
}

std::string text_of(const CUipcMemHandle &handle) {
    return {handle.reserved, sizeof handle.reserved};
}

CUipcMemHandle handle_of(const Peer &exporter, unsigned slot, size_t offset = 0) {
    const Answer answer = exporter.get_handle(slot, offset);
    CHECK(answer.result == CUDA_SUCCESS && answer.matches);
    return answer.handle;
}

// --- cases

void share(const Peer &exporter, const Peer &importer, How how, size_t size) {
    CHECK(exporter.allocate(0, size, how).result == CUDA_SUCCESS);
    exporter.fill(0, 7);
    const CUipcMemHandle handle = handle_of(exporter, 0);
    const Answer opened = importer.open(0, handle, size), again = importer.open(1, handle, size);
    CHECK(opened.result == CUDA_SUCCESS && again.result == CUDA_SUCCESS);
    CHECK(again.address == opened.address);
    CHECK(importer.holds(0, 7));
    importer.fill(0, 9);
    CHECK(exporter.holds(0, 9));
    CHECK(importer.close(0).result == CUDA_SUCCESS);
    exporter.fill(0, 11);
    CHECK(importer.holds(1, 11));
    CHECK(importer.close(1).result == CUDA_SUCCESS);
    CHECK(exporter.free(0, how).result == CUDA_SUCCESS);
}

// Many blocks of one segment, each by a handle of its own: the importer gets each block's own
// address.
void share_small_blocks(const Peer &exporter, const Peer &importer) {
    std::set<std::string> handles;
    constexpr unsigned count = 8;
    const size_t size = 96 * KiB;
    for (unsigned slot = 0; slot < count; ++slot) {
        CHECK(exporter.allocate(slot, size, How::unordered).result == CUDA_SUCCESS);
        exporter.fill(slot, 20 + slot);
        const CUipcMemHandle handle = handle_of(exporter, slot);
        CHECK(is_name(handle) && handles.insert(text_of(handle)).second);
        CHECK(text_of(handle_of(exporter, slot)) == text_of(handle));
        CHECK(text_of(handle_of(exporter, slot, size - 1)) == text_of(handle));
        CHECK(importer.open(slot, handle, size).result == CUDA_SUCCESS);
    }
    for (unsigned slot = 0; slot < count; ++slot) {
        CHECK(importer.holds(slot, 20 + slot));
        for (const size_t offset : {size_t(0), size / 2, size - 1}) {
            const Answer range = importer.range(slot, offset);
            CHECK(range.result == CUDA_SUCCESS && range.matches && range.size == size);
        }
    }
    std::set<uint64_t> ids;
    for (unsigned slot = 0; slot < count; ++slot) {
        CHECK(ids.insert(importer.range(slot, 0).id).second);
        CHECK(importer.close(slot).result == CUDA_SUCCESS);
        CHECK(exporter.free(slot, How::unordered).result == CUDA_SUCCESS);
    }
}

// An open import stays; a handle that is not open yet can no longer be opened.
void end_by_free(const Peer &exporter, const Peer &importer, How how) {
    CHECK(exporter.allocate(0, 3 * MiB, how).result == CUDA_SUCCESS);
    const CUipcMemHandle handle = handle_of(exporter, 0);
    CHECK(importer.open(0, handle, 3 * MiB).result == CUDA_SUCCESS);
    CHECK(importer.close(0).result == CUDA_SUCCESS);
    CHECK(exporter.free(0, how).result == CUDA_SUCCESS);
    CHECK(importer.open(0, handle, 3 * MiB).result == CUDA_ERROR_INVALID_VALUE);
    // The same address again, perhaps: another allocation has another handle.
    CHECK(exporter.allocate(0, 3 * MiB, how).result == CUDA_SUCCESS);
    CHECK(text_of(handle_of(exporter, 0)) != text_of(handle));
    CHECK(importer.open(0, handle, 3 * MiB).result == CUDA_ERROR_INVALID_VALUE);
    CHECK(exporter.free(0, how).result == CUDA_SUCCESS);
}

void end_by_exit(const Peer &importer) {
    CUipcMemHandle handle = {};
    {
        const Peer exporter(under_emm());
        CHECK(exporter.allocate(0, 3 * MiB, How::unordered).result == CUDA_SUCCESS);
        handle = handle_of(exporter, 0);
        CHECK(importer.open(0, handle, 3 * MiB).result == CUDA_SUCCESS);
    }
    CHECK(importer.open(1, handle, 3 * MiB).result == CUDA_SUCCESS); // this process has it open
    CHECK(importer.close(1).result == CUDA_SUCCESS);
    CHECK(importer.close(0).result == CUDA_SUCCESS);
    CHECK(importer.open(0, handle, 3 * MiB).result == CUDA_ERROR_INVALID_VALUE);
}

// The contexts of both end in turn, and new ones go on.
void end_by_reset(const Peer &exporter, const Peer &importer) {
    CHECK(exporter.allocate(0, 3 * MiB, How::unordered).result == CUDA_SUCCESS);
    CUipcMemHandle handle = handle_of(exporter, 0);
    CHECK(importer.open(0, handle, 3 * MiB).result == CUDA_SUCCESS);
    CHECK(importer.reset().result == CUDA_SUCCESS);
    CHECK(importer.open(0, handle, 3 * MiB).result == CUDA_SUCCESS);
    CHECK(importer.close(0).result == CUDA_SUCCESS);
    CHECK(exporter.reset().result == CUDA_SUCCESS);
    CHECK(importer.open(0, handle, 3 * MiB).result == CUDA_ERROR_INVALID_VALUE);
    share(exporter, importer, How::unordered, 3 * MiB);
}

void refuse_wrong(const Peer &exporter, const Peer &importer) {
    CHECK(exporter.allocate(0, 3 * MiB, How::unordered).result == CUDA_SUCCESS);
    const CUipcMemHandle handle = handle_of(exporter, 0);
    CHECK(exporter.open(1, handle, 3 * MiB).result == CUDA_ERROR_INVALID_CONTEXT); // its own
    for (size_t i = 0; i < sizeof handle.reserved; ++i) {
        CUipcMemHandle bad = handle;
        bad.reserved[i] = static_cast<char>(bad.reserved[i] ^ 0x20);
        CHECK(importer.open(0, bad, 3 * MiB).result == CUDA_ERROR_INVALID_VALUE);
    }
    CHECK(importer.open(0, handle, 3 * MiB, 0).result == CUDA_ERROR_INVALID_VALUE); // no flag
    CHECK(exporter.allocate(1, MiB, How::managed).result == CUDA_SUCCESS);
    const Answer refused = exporter.get_handle(1, 0);
    CHECK(refused.result == CUDA_ERROR_INVALID_VALUE && !refused.matches);
    CHECK(importer.open(0, handle, 3 * MiB).result == CUDA_SUCCESS);
    CHECK(importer.get_handle(0, 0).result == CUDA_ERROR_INVALID_VALUE); // of another process
    CHECK(importer.close(0).result == CUDA_SUCCESS);
    CHECK(exporter.free(0, How::unordered).result == CUDA_SUCCESS);
    CHECK(exporter.free(1, How::unordered).result == CUDA_SUCCESS);
}

// Only cuIpcCloseMemHandle ends an import.
void refuse_frees(const Peer &exporter, const Peer &importer) {
    CHECK(exporter.allocate(0, 3 * MiB, How::ordered).result == CUDA_SUCCESS);
    const CUipcMemHandle handle = handle_of(exporter, 0);
    exporter.fill(0, 7);
    for (const unsigned slot : {0U, 1U, 2U}) {
        CHECK(importer.open(slot, handle, 3 * MiB).result == CUDA_SUCCESS);
    }
    CHECK(importer.free(1, How::unordered).result == CUDA_ERROR_INVALID_VALUE);
    CHECK(importer.free(2, How::ordered).result == CUDA_ERROR_INVALID_VALUE);
    CHECK(importer.holds(0, 7));
    CHECK(importer.close(0).result == CUDA_SUCCESS);
    CHECK(importer.open(0, handle, 3 * MiB).result == CUDA_SUCCESS && importer.holds(0, 7));
    CHECK(exporter.free(0, How::ordered).result == CUDA_SUCCESS);
}

void share_from_threads(const Peer &exporter, const Peer &importer) {
    CHECK(exporter.allocate(0, 3 * MiB, How::unordered).result == CUDA_SUCCESS);
    CHECK(exporter.get_handles_at_once(0));
    const CUipcMemHandle handle = handle_of(exporter, 0);
    CHECK(importer.open_and_close_at_once(handle));
    exporter.fill(0, 7);
    CHECK(importer.open(0, handle, 3 * MiB).result == CUDA_SUCCESS && importer.holds(0, 7));
    CHECK(importer.open_and_close_at_once(handle) && importer.holds(0, 7));
    CHECK(importer.close(0).result == CUDA_SUCCESS);
    CHECK(exporter.free(0, How::unordered).result == CUDA_SUCCESS);
}

// Whatever an export and an opening take, the free and the close give back.
void leave_nothing(const Peer &exporter, const Peer &importer) {
    const Peer *const peers[] = {&exporter, &importer};
    uint64_t most[2] = {}; // in the first rounds, which bring objects that stay
    for (int round = 0; round < 20; ++round) {
        share(exporter, importer, How::unordered, 5 * MiB);
        for (int i = 0; i < 2; ++i) {
            uint64_t held = peers[i]->descriptors();
            if (round < 3) {
                most[i] = std::max(most[i], held);
                continue;
            }
            // The connection of a question ends a moment after its answer.
            for (int tries = 0; held > most[i] && tries < 100; ++tries) {
                usleep(100'000);
                held = peers[i]->descriptors();
            }
            CHECK(held <= most[i]);
        }
    }
}

// A question takes no descriptor, nor does an export: a program may have thousands of them.
void export_many(const Peer &exporter, const Peer &importer) {
    constexpr unsigned count = 300;
    share(exporter, importer, How::unordered, MiB); // brings objects that stay
    const uint64_t before = exporter.descriptors();
    for (unsigned slot = 0; slot < count; ++slot) {
        CHECK(exporter.allocate(slot, 64 * KiB, How::unordered).result == CUDA_SUCCESS);
        CHECK(exporter.is_said_to_be_shareable(slot));
    }
    CHECK(exporter.descriptors() == before);
    std::vector<CUipcMemHandle> handles;
    for (unsigned slot = 0; slot < count; ++slot) {
        handles.push_back(handle_of(exporter, slot));
    }
    CHECK(exporter.descriptors() == before);
    exporter.fill(count - 1, 7);
    CHECK(importer.open(0, handles.back(), 64 * KiB).result == CUDA_SUCCESS);
    CHECK(importer.holds(0, 7) && importer.close(0).result == CUDA_SUCCESS);
    for (unsigned slot = 0; slot < count; ++slot) {
        CHECK(exporter.free(slot, How::unordered).result == CUDA_SUCCESS);
        CHECK(importer.open(0, handles[slot], 64 * KiB).result == CUDA_ERROR_INVALID_VALUE);
    }
}

void share_with_native() {
    const Peer native(natively()), ours(under_emm());
    CHECK(native.allocate(0, 5 * MiB, How::unordered).result == CUDA_SUCCESS);
    const CUipcMemHandle theirs = handle_of(native, 0);
    CHECK(!is_name(theirs));
    native.fill(0, 7);
    CHECK(ours.open(0, theirs, 5 * MiB).result == CUDA_SUCCESS && ours.holds(0, 7));
    ours.fill(0, 9);
    CHECK(native.holds(0, 9));
    CHECK(ours.close(0).result == CUDA_SUCCESS);
    CHECK(ours.allocate(1, 5 * MiB, How::unordered).result == CUDA_SUCCESS);
    CHECK(native.open(1, handle_of(ours, 1), 5 * MiB).result == CUDA_ERROR_INVALID_VALUE);
}

void refuse_to_copy(const Peer &from) {
    std::vector<std::string> staged = under_emm();
    staged.push_back("EMM_IPC_STAGED=1");
    const Peer there(staged, 1);
    CHECK(from.allocate(0, 5 * MiB, How::unordered).result == CUDA_SUCCESS);
    CHECK(there.open(0, handle_of(from, 0), 5 * MiB).result == CUDA_ERROR_MAP_FAILED);
    CHECK(from.free(0, How::unordered).result == CUDA_SUCCESS);
}

// An open import follows cuCtxEnablePeerAccess, as memory of the process's own does.
void reach_what_is_open(const Peer &exporter, const Peer &importer) {
    CHECK(exporter.allocate(0, 5 * MiB, How::unordered).result == CUDA_SUCCESS);
    const CUipcMemHandle handle = handle_of(exporter, 0);
    CHECK(importer.open(0, handle, 5 * MiB).result == CUDA_SUCCESS);
    importer.enable(1);
    importer.fill_from(1, 0, 7);
    CHECK(exporter.holds(0, 7));
    CHECK(importer.close(0).result == CUDA_SUCCESS);
    CHECK(importer.open(0, handle, 5 * MiB).result == CUDA_SUCCESS);
    importer.fill_from(1, 0, 9);
    CHECK(importer.holds(0, 9) && exporter.holds(0, 9));
    CHECK(importer.close(0).result == CUDA_SUCCESS);
    CHECK(exporter.free(0, How::unordered).result == CUDA_SUCCESS);
}

// Each of two devices opens memory of the other; a copy by emm is no sharing.
void share_between_devices() {
    const Peer here(under_emm());
    if (!here.reaches(1)) {
        std::puts("   skipped: there is no second device that this one reaches");
        return;
    }
    const Peer there(under_emm(), 1), native(natively());
    for (const How how : {How::unordered, How::ordered}) {
        for (const size_t size : {4 * KiB, MiB + 512, 33 * MiB}) {
            share(here, there, how, size);
            share(there, here, how, size);
        }
    }
    share_small_blocks(here, there);
    share_small_blocks(there, here);
    end_by_free(here, there, How::unordered);
    leave_nothing(there, here);
    share(native, there, How::unordered, 5 * MiB);
    reach_what_is_open(here, Peer(under_emm()));
    reach_what_is_open(native, Peer(under_emm()));
    reach_what_is_open(Peer(natively()), native);
    refuse_to_copy(here);
}

void run(const char *name, void (*one)(const Peer &exporter, const Peer &importer)) {
    std::printf("%s ...\n", name);
    std::fflush(stdout);
    Peer first(under_emm()), second(under_emm());
    one(first, second);
    one(second, first);
}

} // namespace

int main(int argc, char *argv[]) {
    if (argc == 4 && std::strcmp(argv[1], "peer") == 0) {
        return be_peer(std::atoi(argv[2]), std::atoi(argv[3]));
    }
    if (argc != 4) {
        std::fputs("usage: sharing DRIVER INTERPOSER PLUGIN\n", stderr);
        return 2;
    }
    driver_folder = argv[1], interposer_folder = argv[2], plugin = argv[3];
    run("memory that was allocated without a stream", [](const Peer &from, const Peer &to) {
        for (const size_t size : {4 * KiB, MiB + 512, 33 * MiB}) {
            share(from, to, How::unordered, size);
        }
    });
    run("memory that was allocated on a stream",
        [](const Peer &from, const Peer &to) { share(from, to, How::ordered, 5 * MiB); });
    run("small blocks", share_small_blocks);
    run("freed memory", [](const Peer &from, const Peer &to) {
        end_by_free(from, to, How::unordered);
        end_by_free(from, to, How::ordered);
    });
    run("an exporter that has ended", [](const Peer &, const Peer &to) { end_by_exit(to); });
    run("contexts that end", end_by_reset);
    run("handles that are wrong", refuse_wrong);
    run("frees of what is open", refuse_frees);
    run("several threads", share_from_threads);
    run("nothing is left", leave_nothing);
    run("many exports", export_many);
    std::puts("a process without emm ...");
    share_with_native();
    std::puts("two devices ...");
    share_between_devices();
    return 0;
}
