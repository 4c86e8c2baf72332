#include "observe/events/log_writer.h"

#include "observe/events/python_calls.h"
#include "observe/write_signals.h"

#include <algorithm>
#include <cerrno>
#include <queue>
#include <unistd.h>
#include <utility>

namespace emm::observe {
namespace {

constexpr size_t enough_text = size_t(256) << 10;

} // namespace

// Goes through a buffer's records, and says in each chunk's next slot how far it came.
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

    // To the first record from here on; false if there is none.
    bool settle() {
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
        return ++at.written[slot] < end || settle();
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
        if (cursor.settle()) {
            cursors.push(cursor);
        }
    }
    while (!cursors.empty() && cursors.top().moment() < watermark) {
        Cursor cursor = cursors.top();
        cursors.pop();
        learn_callers(); // the record's is known to the spool since before it was committed
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

// To whole rows, those that the spool has no more.
void LogWriter::cut() {
    const int error = errno;
    csv_bytes_ = agreed_bytes(spool_.header());
    if (ftruncate(csv_, static_cast<off_t>(csv_bytes_)) == 0) {
        lseek(csv_, 0, SEEK_END);
    }
    errno = error;
}

bool LogWriter::flush() {
    for (size_t done = 0; done < text_.size();) {
        const ssize_t now = ::write(csv_, text_.data() + done, text_.size() - done);
        if (now < 0 && errno != EINTR) {
            return false;
        }
        done += now > 0 ? static_cast<size_t>(now) : 0;
    }
    csv_bytes_ += text_.size();
    text_.clear();
    return true;
}

} // namespace emm::observe
