// Children forked beside exports: their open descriptors.
#include "children.h"

#include <cstdio>
#include <filesystem>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace forked {
namespace {

struct Descriptors {
    int sockets = 0, memory = 0;
};

Descriptors count_descriptors() {
    Descriptors counted;
    for (const auto &each : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        const std::string target = std::filesystem::read_symlink(each.path(), gone);
        counted.sockets += target.rfind("socket:", 0) == 0;
        counted.memory += target.find("memfd:simcuda") != std::string::npos;
    }
    return counted;
}

// The descriptors of a child that was forked when nothing was under way.
Descriptors *kept = nullptr;

void remember_kept() {
    *kept = count_descriptors();
}

// One descriptor of memory is the simulated driver's own, which opens imported descriptors once
// more.
void keep_no_more() {
    say_doing("counting its descriptors");
    const Descriptors counted = count_descriptors();
    if (counted.sockets > kept->sockets || counted.memory > kept->memory + 1) {
        char text[128];
        std::snprintf(text, sizeof text, "it kept %d sockets of %d, %d descriptors of memory of %d",
                      counted.sockets, kept->sockets, counted.memory, kept->memory);
        say_wrong(text);
    }
}

void fork_among(const std::vector<std::function<void()>> &acts, int rounds) {
    kept = static_cast<Descriptors *>(
        mmap(nullptr, sizeof *kept, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    fork_one(remember_kept, End::at_once);
    Busy busy(acts);
    for (int round = 0; round < rounds && !is_enough(); ++round) {
        fork_one(keep_no_more, End::at_once);
    }
}

void open_and_close(const emm_ipc_handle &handle) {
    emm_memory *memory = nullptr;
    if (emm_memory_open_ipc(things.context, &handle, &memory) >= EMM_OK) {
        emm_memory_release(memory);
    } else {
        say_wrong("an export should be opened");
    }
}

// The other process. It ends when its pipe does.
[[noreturn]] void import_for(int from, int to, int rounds) {
    emm_ipc_handle handle = {};
    require(read(from, &handle, sizeof handle) == sizeof handle, "a handle");
    require(emm_context_for_device(0, &things.context) == EMM_OK, "the importer's context");
    open_and_close(handle);
    require(write(to, "", 1) == 1, "the importer's word");
    fork_among({[&] { open_and_close(handle); }}, rounds);
    require(write(to, "", 1) == 1, "the importer's word");
    _exit(hung + wrong);
}

void export_and_end() {
    emm_memory *memory = nullptr;
    emm_ipc_handle handle = {};
    if (emm_memory_alloc(things.context, some_bytes, EMM_STREAM_UNORDERED, &memory) >= EMM_OK) {
        if (emm_memory_export(memory, &handle) >= EMM_OK) {
            emm_release_ipc_handle(things.context, &handle);
        }
        emm_memory_release(memory);
    }
}

} // namespace

void fork_among_exports(int rounds) {
    int down[2], up[2];
    char word;
    require(pipe(down) == 0 && pipe(up) == 0, "pipes");
    const pid_t importer = fork(); // before emm is touched
    require(importer >= 0, "fork");
    if (importer == 0) {
        share_report();
        import_for(down[0], up[1], rounds);
    }
    require(emm_context_for_device(0, &things.context) == EMM_OK, "a context");
    emm_memory *memory = nullptr;
    emm_ipc_handle handle = {};
    require(emm_memory_alloc(things.context, 64 << 20, nullptr, &memory) >= EMM_OK, "memory");
    require(emm_memory_export(memory, &handle) >= EMM_OK, "an export");
    require(write(down[1], &handle, sizeof handle) == sizeof handle, "a handle for the importer");
    require(read(up[0], &word, 1) == 1, "the importer's word");
    fork_among({export_and_end}, rounds);
    require(read(up[0], &word, 1) == 1, "the importer's word");
    int status = 0;
    waitpid(importer, &status, 0);
    wrong += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

} // namespace forked
