#include "observe/events/spool.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emm::observe {
namespace {

constexpr char magic[16] = "emm events 1\n";
constexpr size_t header_bytes = 4096, most_module_bytes = 252 * 1024;
constexpr size_t head_bytes = header_bytes + most_module_bytes;
constexpr size_t chunks_at_once = 16, grown_bytes = chunks_at_once * sizeof(Chunk);

void *map(int file, uint64_t offset, size_t bytes) {
    void *const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file,
                          static_cast<off_t>(offset));
    return at == MAP_FAILED ? nullptr : at;
}

std::string because(const std::string &path, const char *what) {
    return std::string("cannot ") + what + " " + path + ": " + std::strerror(errno);
}

} // namespace

Spool::~Spool() {
    for (size_t i = 0; i < chunks_.size(); i += chunks_at_once) {
        munmap(chunks_[i], grown_bytes);
    }
    if (header_) {
        munmap(header_, head_bytes);
    }
    close(file_);
}

// Not flock, which forked children would go on to hold.
bool Spool::lock(std::string &ret_reason, bool &ret_busy) const {
    struct flock wanted = {};
    wanted.l_type = F_WRLCK;
    wanted.l_whence = SEEK_SET;
    if (fcntl(file_, F_SETLK, &wanted) == 0) {
        return true;
    }
    ret_reason = because(path_, "lock");
    ret_busy = errno == EACCES || errno == EAGAIN;
    if (ret_busy && fcntl(file_, F_GETLK, &wanted) == 0 && wanted.l_type != F_UNLCK) {
        ret_reason = path_ + " is being written by process " + std::to_string(wanted.l_pid);
    }
    return false;
}

bool Spool::map_head() {
    header_ = static_cast<SpoolHeader *>(map(file_, 0, head_bytes));
    modules_ = reinterpret_cast<char *>(header_) + header_bytes;
    return header_;
}

bool Spool::map_chunks(uint64_t offset) {
    auto *const first = static_cast<Chunk *>(map(file_, offset, grown_bytes));
    for (size_t i = 0; first && i < chunks_at_once; ++i) {
        chunks_.push_back(first + i);
    }
    return first;
}

std::unique_ptr<Spool> Spool::create(const std::string &path, std::string &ret_reason) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) {
        ret_reason = because(path, "open");
        return nullptr;
    }
    std::unique_ptr<Spool> spool(new Spool(file, path));
    bool busy = false;
    if (!spool->lock(ret_reason, busy)) {
        return nullptr;
    }
    // Blocks of the disk are reserved beforehand: writing to a mapping has no way to fail.
    if (ftruncate(file, 0) != 0 || (errno = posix_fallocate(file, 0, head_bytes)) != 0 ||
        !spool->map_head() || !spool->grow()) {
        ret_reason = because(path, "write");
        spool->unlink();
        return nullptr;
    }
    std::memcpy(spool->header_->magic, magic, sizeof magic);
    return spool;
}

std::unique_ptr<Spool> Spool::open(const std::string &path, std::string &ret_reason,
                                   bool &ret_busy) {
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) {
        ret_reason = errno == ENOENT ? "" : because(path, "open");
        return nullptr;
    }
    std::unique_ptr<Spool> spool(new Spool(file, path));
    struct stat status;
    if (!spool->lock(ret_reason, ret_busy)) {
        return nullptr;
    }
    if (fstat(file, &status) != 0 || static_cast<uint64_t>(status.st_size) < head_bytes ||
        !spool->map_head() || std::memcmp(spool->header_->magic, magic, sizeof magic) != 0) {
        ret_reason = path + " was not left by an event log of this version";
        return nullptr;
    }
    const auto bytes = static_cast<uint64_t>(status.st_size);
    for (uint64_t at = head_bytes; at + grown_bytes <= bytes; at += grown_bytes) {
        if (!spool->map_chunks(at)) {
            ret_reason = because(path, "map");
            return nullptr;
        }
    }
    return spool;
}

bool Spool::grow() {
    const uint64_t offset = head_bytes + chunks_.size() * sizeof(Chunk);
    errno = posix_fallocate(file_, static_cast<off_t>(offset), grown_bytes);
    return errno == 0 && map_chunks(offset);
}

void Spool::add_module(const std::string &line) {
    const uint64_t bytes = header_->module_bytes.load(std::memory_order_relaxed);
    if (bytes + line.size() <= most_module_bytes) {
        std::memcpy(modules_ + bytes, line.data(), line.size());
        header_->module_bytes.store(bytes + line.size(), std::memory_order_release);
    }
}

std::string_view Spool::modules() const {
    const uint64_t bytes = header_->module_bytes.load(std::memory_order_acquire);
    return {modules_, std::min<uint64_t>(bytes, most_module_bytes)};
}

void Spool::unlink() {
    ::unlink(path_.c_str());
}

} // namespace emm::observe
