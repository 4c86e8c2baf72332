#include "observe/events/log_writer.h"

#include "observe/error.h"
#include "observe/events/python_calls.h"
#include "observe/file.h"
#include "observe/read_write.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <queue>
#include <unistd.h>
#include <utility>

namespace emm::observe {
namespace {

constexpr size_t enough_text = size_t(256) << 10;

} // namespace

// Walks a buffer's records, and keeps its position in each chunk's `written` slot.
struct LogWriter::Cursor {
    const std::vector<Chunk *> *chunks;
    size_t slot;
    size_t chunk = 0;
    uint32_t end = 0;

    const EventRecord &record() const {
        const Chunk &at = *(*chunks)[chunk];
        return at.records[at.written[slot]];
    }
    uint64_t moment() const { return record().moment(); }

    // Moves to the next record, which may be the present one; false after the last record.
    bool find_record() {
        for (; chunk < chunks->size(); ++chunk) {
            const Chunk &at = *(*chunks)[chunk];
            end = std::min<uint32_t>(at.committed.load(std::memory_order_acquire), Chunk::capacity);
            if (at.written[slot] < end) {
                return true;
            }
        }
        return false;
    }
    bool advance() {
        Chunk &at = *(*chunks)[chunk];
        return ++at.written[slot] < end || find_record();
    }
};

LogWriter::LogWriter(Spool &spool, int csv)
    : spool_(spool), csv_(csv), rows_(spool.header().first_tick, spool.header().ns_per_tick) {
    csv_bytes_ = agreed_bytes(spool.header());
}

uint32_t LogWriter::written(const Chunk &chunk) const {
    return chunk.written[spool_.header().epoch.load(std::memory_order_relaxed) & 1];
}

bool LogWriter::write(const std::vector<std::vector<Chunk *>> &buffers, uint64_t watermark) {
    const size_t now = spool_.header().epoch.load(std::memory_order_relaxed) & 1;
    for (const std::vector<Chunk *> &buffer : buffers) {
        for (Chunk *chunk : buffer) {
            chunk->written[1 - now] = chunk->written[now];
        }
    }
    const WriteSignalsBlocked blocked;
    if (!merge(buffers, watermark) || !flush()) {
        cut();
        return false;
    }
    spool_.header().csv_bytes[1 - now] = csv_bytes_;
    spool_.header().epoch.fetch_add(1, std::memory_order_release);
    return true;
}

bool LogWriter::merge(const std::vector<std::vector<Chunk *>> &buffers, uint64_t watermark) {
    const size_t slot = 1 - (spool_.header().epoch.load(std::memory_order_relaxed) & 1);
    const auto later = [](const Cursor &one, const Cursor &other) {
        return one.moment() > other.moment();
    };
    std::priority_queue<Cursor, std::vector<Cursor>, decltype(later)> cursors(later);
    for (const std::vector<Chunk *> &buffer : buffers) {
        Cursor cursor{&buffer, slot};
        if (cursor.find_record()) {
            cursors.push(cursor);
        }
    }
    while (!cursors.empty() && cursors.top().moment() < watermark) {
        Cursor cursor = cursors.top();
        cursors.pop();
        learn_callers(); // the spool has known the record's caller since before the commit
        rows_.append(cursor.record(), text_);
        if (cursor.advance()) {
            cursors.push(cursor);
        }
        if (text_.size() >= enough_text && !flush()) {
            return false;
        }
    }
    return true;
}

void LogWriter::learn_callers() {
    std::string_view text = spool_.lines();
    if (text.size() == lines_known_) {
        return;
    }
    text.remove_prefix(std::exchange(lines_known_, text.size()));
    while (!text.empty()) {
        std::string calls;
        if (take_python_calls(text, calls)) {
            rows_.locations().add(std::move(calls));
        } else if (std::optional<Module> module = take_module(text)) {
            rows_.locations().add(std::move(*module));
        }
    }
}

// Cuts the log to whole rows whose records the spool no longer has.
void LogWriter::cut() {
    const int error = errno;
    csv_bytes_ = agreed_bytes(spool_.header());
    if (ftruncate(csv_, static_cast<off_t>(csv_bytes_)) == 0) {
        lseek(csv_, 0, SEEK_END);
    }
    errno = error;
}

bool LogWriter::flush() {
    if (!write_all(csv_, text_)) {
        return false;
    }
    csv_bytes_ += text_.size();
    text_.clear();
    return true;
}

namespace {

std::vector<std::vector<Chunk *>> buffers_of(const Spool &spool) {
    std::map<uint32_t, std::vector<Chunk *>> buffers;
    for (Chunk *chunk : spool.chunks()) {
        if (chunk->committed.load(std::memory_order_relaxed) != 0) {
            buffers[chunk->buffer].push_back(chunk);
        }
    }
    std::vector<std::vector<Chunk *>> all;
    for (auto &[number, chunks] : buffers) {
        std::sort(chunks.begin(), chunks.end(), [](const Chunk *one, const Chunk *other) {
            return one->sequence < other->sequence;
        });
        all.push_back(std::move(chunks));
    }
    return all;
}

// The counts go on from the rows that the log has already.
void resume(Rows &rows, const File &csv) {
    constexpr size_t longest = 1 << 20; // a longer line is no row of ours
    std::string text, part(1 << 16, 0);
    off_t at = 0;
    for (ssize_t got; (got = pread(csv.number(), part.data(), part.size(), at)) > 0; at += got) {
        text.append(part, 0, static_cast<size_t>(got));
        size_t begin = 0;
        for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
            rows.resume(std::string_view(text).substr(begin, end - begin));
        }
        text.erase(0, text.size() - begin > longest ? text.size() : begin);
    }
}

bool ends_a_row(const File &csv, uint64_t size) {
    char last = 0;
    return size >= Rows::header.size() &&
           pread(csv.number(), &last, 1, static_cast<off_t>(size - 1)) == 1 && last == '\n';
}

// "" if log and spool belong together.
std::string fault_of(const File &csv, const Spool &spool, const std::string &path) {
    const uint64_t expected = agreed_bytes(spool.header());
    const off_t found = lseek(csv.number(), 0, SEEK_END);
    if (found < 0 || static_cast<uint64_t>(found) < expected) {
        return fmt::format("{0}.spool: expected {1} bytes of {0}, found {2}", path, expected,
                           found);
    }
    if (!ends_a_row(csv, expected)) {
        return fmt::format("{0}.spool: no row of {0} ends at byte {1}", path, expected);
    }
    return spool.fault();
}

// Changes nothing if log and spool do not match.
File open_log(const std::string &path, const Spool &spool, emm_status &ret_status) {
    std::string reason;
    File csv = open_own(path, Make::no, reason);
    if (!csv) {
        reason = reason.empty() ? "cannot open " + path + ": " + std::strerror(ENOENT) : reason;
        ret_status = fail(EMM_E_INVALID_VALUE, 0, reason);
        return csv;
    }
    if (!lock_for_writing(csv)) {
        ret_status = fail(EMM_E_BUSY, 0, "{} is being written by another process", path);
        return File();
    }
    reason = fault_of(csv, spool, path);
    ret_status = reason.empty() ? EMM_OK : fail(EMM_E_INVALID_VALUE, 0, reason);
    return reason.empty() ? std::move(csv) : File();
}

// The process was killed while it opened the log.
bool is_unused(const Spool &spool) {
    return agreed_bytes(spool.header()) == 0 && buffers_of(spool).empty();
}

emm_status cannot_write(const std::string &path) {
    return refuse("cannot write {}: {}", path, std::strerror(errno));
}

} // namespace

emm_status recover_event_log(const std::string &path) {
    std::string reason;
    bool busy = false;
    const std::unique_ptr<Spool> spool = Spool::open(path + ".spool", reason, busy);
    if (!spool) {
        return reason.empty() ? EMM_OK : fail(busy ? EMM_E_BUSY : EMM_E_INVALID_VALUE, 0, reason);
    }
    if (is_unused(*spool)) {
        spool->unlink();
        return EMM_OK;
    }
    emm_status status = EMM_OK;
    const File csv = open_log(path, *spool, status);
    if (!csv) {
        return status;
    }
    const auto bytes = static_cast<off_t>(agreed_bytes(spool->header()));
    if (ftruncate(csv.number(), bytes) != 0 || lseek(csv.number(), 0, SEEK_END) < 0) {
        return cannot_write(path);
    }
    LogWriter writer(*spool, csv.number());
    resume(writer.rows(), csv);
    if (!writer.write(buffers_of(*spool), ~uint64_t(0))) {
        return cannot_write(path);
    }
    spool->unlink();
    return EMM_OK;
}

} // namespace emm::observe
