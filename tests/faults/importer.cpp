#include "importer.h"

#include "fault.h"
#include "world.h"

#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace faults {
namespace {

struct Answer {
    emm_status status = EMM_OK;
    char text[400] = "";
};

[[noreturn]] void import_until_told(int socket) {
    open_driver();
    emm_context *context = nullptr;
    must(emm_context_for_device(0, &context) == EMM_OK, "an importing context");
    emm_ipc_handle handle;
    while (read(socket, &handle, sizeof handle) == sizeof handle) {
        emm_memory *memory = nullptr;
        Answer answer;
        answer.status = emm_memory_open_ipc(context, &handle, &memory);
        std::strncpy(answer.text, emm_last_error()->text, sizeof answer.text - 1);
        emm_memory_release(memory);
        must(write(socket, &answer, sizeof answer) == sizeof answer, "telling what was opened");
    }
    _exit(0);
}

} // namespace

Importer::Importer() {
    int ends[2];
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "a socket");
    process_ = fork();
    if (process_ == 0) {
        close(ends[0]);
        import_until_told(ends[1]);
    }
    close(ends[1]);
    pipe_ = ends[0];
}

Importer::~Importer() {
    close(pipe_);
    waitpid(process_, nullptr, 0);
}

std::string Importer::open(const emm_ipc_handle &handle) {
    Answer answer;
    pollfd waiting = {pipe_, POLLIN, 0};
    must(write(pipe_, &handle, sizeof handle) == sizeof handle, "telling what to open");
    if (poll(&waiting, 1, 20'000) != 1) {
        return silent;
    }
    must(read(pipe_, &answer, sizeof answer) == sizeof answer, "an importer's answer");
    return answer.status >= EMM_OK ? "" : answer.text;
}

} // namespace faults
