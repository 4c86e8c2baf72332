#include "write_signals.h"

#include <fcntl.h>
#include <initializer_list>
#include <unistd.h>

namespace emm::tool {

WriteSignalsIgnored::WriteSignalsIgnored() {
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &pipe_);
    sigaction(SIGXFSZ, &ignore, &size_);
}

void WriteSignalsIgnored::restore() {
    if (!is_restored_) {
        sigaction(SIGPIPE, &pipe_, nullptr);
        sigaction(SIGXFSZ, &size_, nullptr);
    }
    is_restored_ = true;
}

// The lowest number that is free is the one that is closed.
void hold_standard_descriptors() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (fcntl(descriptor, F_GETFD) < 0) {
            const bool is_input = descriptor == STDIN_FILENO;
            static_cast<void>(open("/dev/null", (is_input ? O_WRONLY : O_RDONLY) | O_CLOEXEC));
        }
    }
}

} // namespace emm::tool
