#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace emm::tool {

size_t terminal_width(int descriptor) {
    winsize size = {};
    return isatty(descriptor) == 1 && ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

} // namespace emm::tool
