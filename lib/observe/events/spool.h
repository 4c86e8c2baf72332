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
    std::atomic<int32_t> process;     // the process that writes it
};

// The log's length when log and spool last agreed.
inline uint64_t agreed_bytes(const SpoolHeader &header) noexcept {
    return header.csv_bytes[header.epoch.load(std::memory_order_relaxed) & 1];
}

class Spool {
public:
    ~Spool();

    // If they fail, both leave nothing behind, and say why. `create` begins anew; `open` opens the
    // spool of an ended process. A null result without a reason means that `path` has no spool;
    // `busy` means that the process has not ended. Only a user's own files are opened, and only an
    // event log's files are overwritten.
    static std::unique_ptr<Spool> create(const std::string &path, std::string &ret_reason);
    static std::unique_ptr<Spool> open(const std::string &path, std::string &ret_reason,
                                       bool &ret_busy);

    SpoolHeader &header() const { return *header_; }
    const std::vector<Chunk *> &chunks() const { return chunks_; }

    // Appends empty chunks that can be written without a page fault. False: the disk is full.
    bool grow();

    // Appends to the text about callers: modules, and calls of Python. False: the text is full.
    bool add_line(const std::string &line);
    std::string_view lines() const;

    // Removes the file's name; the mappings stay.
    void unlink();

    // Why this is no valid spool; "" if it is one. For spools from outside.
    std::string fault() const;

private:
    Spool(File lock, File file, std::string path)
        : lock_(std::move(lock)), file_(std::move(file)), path_(std::move(path)) {}
    static std::unique_ptr<Spool> claim(const std::string &path, Make make, std::string &ret_reason,
                                        bool &ret_busy);
    bool reserve(uint64_t offset, size_t bytes) const; // reserves blocks of the disk; else errno
    bool map_head();
    bool map_chunks(uint64_t offset);

    const File lock_; // the same file, opened a second time: a mapping would prolong the lock
    const File file_; // the mapped file
    const std::string path_;
    SpoolHeader *header_ = nullptr;
    char *lines_ = nullptr;
    std::vector<Chunk *> chunks_;
};

} // namespace emm::observe
