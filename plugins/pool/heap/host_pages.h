// Host memory straight from the kernel: zero until touched, and untouched pages cost nothing. For
// arrays that are as large as the device memory they describe, and mostly empty.
#pragma once

#include <cstddef>
#include <new>
#include <sys/mman.h>
#include <utility>

namespace emm::pool {

template <class T> class HostPages {
public:
    HostPages() = default;
    explicit HostPages(size_t count) : count_(count) {
        void *pages = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pages == MAP_FAILED) {
            throw std::bad_alloc();
        }
        data_ = static_cast<T *>(pages);
    }
    HostPages(HostPages &&other) noexcept
        : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
    HostPages &operator=(HostPages &&other) noexcept {
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
        return *this;
    }
    ~HostPages() {
        if (data_) {
            munmap(data_, count_ * sizeof(T));
        }
    }
    T &operator[](size_t index) const { return data_[index]; }
    // Makes the pages zero again, so that they cost nothing. Whole host pages, or nothing happens.
    void discard(size_t first, size_t count) {
        madvise(data_ + first, count * sizeof(T), MADV_DONTNEED);
    }
    size_t size() const { return count_; }

private:
    T *data_ = nullptr;
    size_t count_ = 0;
};

} // namespace emm::pool
