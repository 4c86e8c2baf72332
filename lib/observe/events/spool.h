#pragma once

#include "observe/events/record.h"
#include "observe/file.h"

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace emm::observe {

/*
 * The file beside the log in which events wait for being written out. It is mapped and shared, so
 * that what has been recorded survives the process, however that ends:
 *
 *     +--------+---------+---------+---------+----
 *     | header | callers | chunk 0 | chunk 1 | ...
 *     +--------+---------+---------+---------+----
 *
 * A chunk belongs to one buffer (a thread's, see event_log.h), which fills it record by record;
 * `committed` says how many there are. Chunks whose records are in the log are used again.
 *
 * How far the log has been written is kept twice, in turns: `epoch` says which of the two counts.
 * A process that is killed while it writes leaves the log longer than csv_bytes[epoch & 1]; what is
 * behind that is cut off, and nothing is there twice or missing.
 */
struct Chunk {
    static constexpr size_t capacity = 1023;

    std::atomic<uint32_t> committed;
    uint32_t buffer;
    uint64_t sequence; // within the buffer
    uint32_t written[2];
    uint64_t reserved[5];
    EventRecord records[capacity];
};
static_assert(sizeof(Chunk) == 65536);

struct SpoolHeader {
    char magic[16];
    uint64_t first_tick;
    double ns_per_tick;
    std::atomic<uint64_t> epoch;
    uint64_t csv_bytes[2];
    std::atomic<uint64_t> line_bytes; // of text about callers
    std::atomic<int32_t> process;     // that writes it
};

// How long the log was when it and the spool last agreed.
inline uint64_t agreed_bytes(const SpoolHeader &header) noexcept {
    return header.csv_bytes[header.epoch.load(std::memory_order_relaxed) & 1];
}

class Spool {
public:
    ~Spool();

    // Both leave nothing behind if they fail, and say why. The first begins anew; the second opens
    // what a process that has ended has left: null with no reason if there is nothing, busy if the
    // process has not ended. Only a user's own files are opened, and written over only if an event
    // log has left them.
    static std::unique_ptr<Spool> create(const std::string &path, std::string &ret_reason);
    static std::unique_ptr<Spool> open(const std::string &path, std::string &ret_reason,
                                       bool &ret_busy);

    SpoolHeader &header() const { return *header_; }
    const std::vector<Chunk *> &chunks() const { return chunks_; }

    // Appends chunks that are empty, and ready to be written to without a page fault. False: the
    // disk is full.
    bool grow();

    // Appends to the text about callers: modules, and calls of Python. False: it is full.
    bool add_line(const std::string &line);
    std::string_view lines() const;

    // The file is not needed any more; the mappings stay.
    void unlink();

    // What cannot be in a spool: "" if there is nothing. For those that come from outside.
    std::string fault() const;

private:
    Spool(File lock, File file, std::string path)
        : lock_(std::move(lock)), file_(std::move(file)), path_(std::move(path)) {}
    static std::unique_ptr<Spool> claim(const std::string &path, Make make, std::string &ret_reason,
                                        bool &ret_busy);
    bool reserve(uint64_t offset, size_t bytes) const; // blocks of the disk; else errno
    bool map_head();
    bool map_chunks(uint64_t offset);

    const File lock_; // the same file, opened twice: a mapping would prolong the lock
    const File file_; // what is mapped
    const std::string path_;
    SpoolHeader *header_ = nullptr;
    char *lines_ = nullptr;
    std::vector<Chunk *> chunks_;
};

} // namespace emm::observe
