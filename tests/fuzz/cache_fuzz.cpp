// Any bytes as /etc/ld.so.cache: no byte behind their end is read, and each result is a path.
#include "file.h"
#include "library_file.h"

#include <cstring>
#include <memory>

using namespace emm::run;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::unique_ptr<char[]> exact(new char[size]); // so that a sanitizer knows its end
    std::copy_n(data, size, exact.get());
    each_in_cache(
        exact.get(), size, "libcuda.so.1",
        [](const Path &path, void *) {
            require(std::memchr(path.text, 0, sizeof path.text) != nullptr, "a path ends");
            return false;
        },
        nullptr);
    return 0;
}
