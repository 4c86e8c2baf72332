#include "observe/events/spool.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emm::observe {
namespace {

constexpr char magic[16] = "emm events 2\n";
constexpr size_t header_bytes = 4096, most_line_bytes = 252 * 1024;
constexpr size_t head_bytes = header_bytes + most_line_bytes;
constexpr size_t chunks_at_once = 16, grown_bytes = chunks_at_once * sizeof(Chunk);

constexpr uint64_t most_bytes = head_bytes + (uint64_t(1) << 30); // as in event_log.cpp

void *map(const File &file, uint64_t offset, size_t bytes) {
    void *const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                          file.number(), static_cast<off_t>(offset));
    return at == MAP_FAILED ? nullptr : at;
}

std::string because(const std::string &path, const char *what) {
    return fmt::format("cannot {} {}: {}", what, path, std::strerror(errno));
}

// False: errno has the reason.
bool get_size(const File &file, uint64_t &ret_size) {
    struct stat status = {};
    const bool is_known = fstat(file.number(), &status) == 0;
    ret_size = static_cast<uint64_t>(status.st_size);
    return is_known;
}

// Whether the file is an event log's spool. It may lack the mark if its process was killed early.
// False: errno is the reason, or 0.
bool has_magic(const File &file) {
    char found[sizeof magic] = {};
    errno = 0;
    const ssize_t got = pread(file.number(), found, sizeof found, 0);
    return got == 0 || (got == sizeof found && (std::memcmp(found, magic, sizeof magic) == 0 ||
                                                std::count(found, std::end(found), 0) == got));
}

std::string said_by_none(const std::string &path) {
    return path + " was not left by an event log of this version";
}

std::string said_by_writer(const File &file, const std::string &path) {
    int32_t process = 0;
    const ssize_t got =
        pread(file.number(), &process, sizeof process, offsetof(SpoolHeader, process));
    return path + " is being written by " +
           (got != sizeof process || process <= 0 ? "another process"
            : process == getpid()                 ? "this process"
                                                  : fmt::format("process {}", process));
}

} // namespace

Spool::~Spool() {
    for (size_t i = 0; i < chunks_.size(); i += chunks_at_once) {
        munmap(chunks_[i], grown_bytes);
    }
    if (header_) {
        munmap(header_, head_bytes);
    }
}

// Between open and lock, the file's previous owner may have ended and deleted the name. So the path
// is opened a second time, and both descriptors must be of one file.
std::unique_ptr<Spool> Spool::claim(const std::string &path, Make make, std::string &ret_reason,
                                    bool &ret_busy) {
    for (int attempt = 0; attempt < 100; ++attempt) {
        File locked = open_own(path, make, ret_reason);
        if (!locked) {
            return nullptr;
        }
        if (!lock_for_writing(locked)) {
            ret_busy = errno == EACCES || errno == EAGAIN;
            ret_reason = ret_busy ? said_by_writer(locked, path) : because(path, "lock");
            return nullptr;
        }
        File mapped = open_own(path, Make::no, ret_reason);
        if (mapped && is_same(locked, mapped)) {
            return std::unique_ptr<Spool>(new Spool(std::move(locked), std::move(mapped), path));
        }
        if (!mapped && !ret_reason.empty()) {
            return nullptr;
        }
    }
    ret_reason = path + " is created and deleted again and again";
    return nullptr;
}

bool Spool::map_head() {
    header_ = static_cast<SpoolHeader *>(map(file_, 0, head_bytes));
    lines_ = reinterpret_cast<char *>(header_) + header_bytes;
    return header_;
}

bool Spool::map_chunks(uint64_t offset) {
    auto *const first = static_cast<Chunk *>(map(file_, offset, grown_bytes));
    for (size_t i = 0; first && i < chunks_at_once; ++i) {
        chunks_.push_back(first + i);
    }
    return first;
}

// The spool of an ended process is removed, not written over: a child of that process may still
// have it mapped.
std::unique_ptr<Spool> Spool::create(const std::string &path, std::string &ret_reason) {
    bool busy = false;
    std::unique_ptr<Spool> spool = claim(path, Make::by_owner_only, ret_reason, busy);
    for (uint64_t bytes = 1; bytes != 0;) {
        if (!spool) {
            return nullptr;
        }
        if (!get_size(spool->file_, bytes) || (bytes != 0 && !has_magic(spool->file_))) {
            ret_reason = errno != 0 ? because(path, "read") : said_by_none(path);
            return nullptr;
        }
        if (bytes != 0) {
            spool->unlink();
            spool = claim(path, Make::by_owner_only, ret_reason, busy);
        }
    }
    // Disk blocks are reserved beforehand, because a write to a mapping cannot report failure.
    if (!spool->reserve(0, head_bytes) || !spool->map_head() || !spool->grow()) {
        ret_reason = because(path, "write");
        spool->unlink();
        return nullptr;
    }
    std::memcpy(spool->header_->magic, magic, sizeof magic);
    spool->header_->process = getpid();
    return spool;
}

std::unique_ptr<Spool> Spool::open(const std::string &path, std::string &ret_reason,
                                   bool &ret_busy) {
    std::unique_ptr<Spool> spool = claim(path, Make::no, ret_reason, ret_busy);
    if (!spool) {
        return nullptr;
    }
    uint64_t bytes = 0;
    if (!get_size(spool->file_, bytes)) {
        ret_reason = because(path, "read");
        return nullptr;
    }
    if (bytes > most_bytes) {
        ret_reason = fmt::format("{} has {} bytes; expected at most {}", path, bytes, most_bytes);
        return nullptr;
    }
    if (bytes >= head_bytes && !spool->map_head()) {
        ret_reason = because(path, "map");
        return nullptr;
    }
    if (bytes < head_bytes || std::memcmp(spool->header_->magic, magic, sizeof magic) != 0) {
        ret_reason = said_by_none(path);
        return nullptr;
    }
    for (uint64_t at = head_bytes; at + grown_bytes <= bytes; at += grown_bytes) {
        if (!spool->map_chunks(at)) {
            ret_reason = because(path, "map");
            return nullptr;
        }
    }
    return spool;
}

bool Spool::reserve(uint64_t offset, size_t bytes) const {
    const WriteSignalsBlocked blocked;
    errno = posix_fallocate(file_.number(), static_cast<off_t>(offset), static_cast<off_t>(bytes));
    return errno == 0;
}

bool Spool::grow() {
    const uint64_t offset = head_bytes + chunks_.size() * sizeof(Chunk);
    return reserve(offset, grown_bytes) && map_chunks(offset);
}

bool Spool::add_line(const std::string &line) {
    const uint64_t bytes = header_->line_bytes.load(std::memory_order_relaxed);
    if (bytes + line.size() > most_line_bytes) {
        return false;
    }
    std::memcpy(lines_ + bytes, line.data(), line.size());
    header_->line_bytes.store(bytes + line.size(), std::memory_order_release);
    return true;
}

std::string_view Spool::lines() const {
    const uint64_t bytes = header_->line_bytes.load(std::memory_order_acquire);
    return {lines_, std::min<uint64_t>(bytes, most_line_bytes)};
}

void Spool::unlink() {
    if (is_named(file_, path_)) {
        ::unlink(path_.c_str());
    }
}

std::string Spool::fault() const {
    const double scale = header_->ns_per_tick;
    if (!std::isfinite(scale) || scale <= 0) {
        return fmt::format("{}: expected the length of a tick in nanoseconds, found {:f}", path_,
                           scale);
    }
    for (const Chunk *chunk : chunks_) {
        const uint32_t count = std::min<uint32_t>(chunk->committed, Chunk::capacity);
        const EventRecord *const end = chunk->records + count;
        const EventRecord *const found =
            std::find_if(chunk->records, end,
                         [](const EventRecord &record) { return record.type > EventType::pool; });
        if (found != end) {
            return fmt::format("{}: expected types of events up to {}, found an event of type {}",
                               path_, static_cast<unsigned>(EventType::pool),
                               static_cast<unsigned>(found->type));
        }
    }
    return "";
}

} // namespace emm::observe
