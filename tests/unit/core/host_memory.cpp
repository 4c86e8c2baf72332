#include "host_memory.h"

#include <csignal>
#include <cstdlib>
#include <new>
#include <sys/mman.h>

#if EMM_TEST_FAILS_ALLOCATIONS
namespace {

constexpr size_t page = 65536, most_pages = 16384; // no system has larger pages

char *const pages = static_cast<char *>(mmap(nullptr, page *most_pages, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
size_t used = 0;
volatile size_t touched = 0;

bool is_in_pages(const void *memory) {
    return memory >= pages && memory < pages + page * most_pages;
}

void touch(int, siginfo_t *info, void *) {
    if (!is_in_pages(info->si_addr)) {
        std::abort();
    }
    const auto offset = size_t(static_cast<char *>(info->si_addr) - pages);
    mprotect(pages + offset / page * page, page, PROT_READ | PROT_WRITE);
    touched = touched + 1;
}

} // namespace

thread_local bool has_pages = false;

size_t pages_touched(const std::function<void()> &code) {
    struct sigaction handler = {}, before = {};
    handler.sa_sigaction = &touch;
    handler.sa_flags = SA_SIGINFO;
    touched = 0;
    sigaction(SIGSEGV, &handler, &before);
    mprotect(pages, page * used, PROT_NONE);
    code();
    mprotect(pages, page * used, PROT_READ | PROT_WRITE);
    sigaction(SIGSEGV, &before, nullptr);
    return touched;
}

thread_local bool has_memory = true;
thread_local uint64_t allocations_left = UINT64_MAX;

void *operator new(size_t size) {
    has_memory = has_memory && allocations_left-- != 0;
    const bool in_pages = has_pages && used < most_pages && size <= page;
    void *const memory = !has_memory ? nullptr
                         : in_pages  ? pages + page * used++
                                     : std::malloc(size);
    if (!memory) {
        throw std::bad_alloc();
    }
    return memory;
}

void operator delete(void *memory) noexcept {
    if (!is_in_pages(memory)) {
        std::free(memory);
    }
}

void operator delete(void *memory, size_t) noexcept {
    operator delete(memory);
}
#endif
