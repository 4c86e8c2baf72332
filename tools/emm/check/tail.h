#pragma once

#include "check/case.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace emm::tool::check {

// A struct that ends where inaccessible memory begins.
template <class Struct> class Tail {
public:
    explicit Tail(const Struct &value, size_t bytes = sizeof(Struct)) {
        const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        void *got =
            mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        expect(got != MAP_FAILED, "the suite has no memory");
        char *pages = static_cast<char *>(got);
        mprotect(pages + page, page, PROT_NONE);
        at_ = pages + page - bytes;
        std::memcpy(at_, &value, std::min(bytes, sizeof value));
    }
    Struct *get() const { return reinterpret_cast<Struct *>(at_); }

private:
    char *at_; // never unmapped: a plugin may keep the address
};

} // namespace emm::tool::check
