#include "print.h"

#include "exchange/output.h"

#include <cerrno>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace emm::tool {

// Nothing is kept back for later, when a failure could no longer be told.
void print(std::string_view text) {
    Output output("");
    output.write(text);
    output.finish();
}

void print_json(const Json &json) {
    print(dump(json, 2) + "\n");
}

void print_error(std::string_view text) noexcept {
    while (!text.empty()) {
        const ssize_t done = write(STDERR_FILENO, text.data(), text.size());
        if (done < 0 && errno != EINTR) {
            return;
        }
        text.remove_prefix(done > 0 ? static_cast<size_t>(done) : 0);
    }
}

} // namespace emm::tool
