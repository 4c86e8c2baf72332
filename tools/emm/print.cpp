#include "print.h"

#include "exchange/output.h"
#include "text.h"

#include <cerrno>
#include <new>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace emm::tool {

// Nothing is kept back for later, when a failure could no longer be told.
void print_as_is(std::string_view text) {
    Output output("");
    output.write(text);
    output.finish();
}

void print(std::string_view text) {
    print_as_is(plain_lines(text));
}

void print_json(const Json &json) {
    print_as_is(dump(json, 2) + "\n");
}

void print_error(std::string_view message) noexcept try {
    const std::string plain = plain_lines(message);
    std::string_view text = plain;
    while (!text.empty()) {
        const ssize_t done = write(STDERR_FILENO, text.data(), text.size());
        if (done < 0 && errno != EINTR) {
            return;
        }
        text.remove_prefix(done > 0 ? static_cast<size_t>(done) : 0);
    }
} catch (const std::bad_alloc &) {
    return;
}

} // namespace emm::tool
