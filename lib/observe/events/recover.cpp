#include "observe/error.h"
#include "observe/events/event_log.h"
#include "observe/events/log_writer.h"
#include "observe/events/spool.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <unistd.h>

namespace emm::observe {
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

// What is in the log already is where the counts go on from.
void resume(Rows &rows, const File &csv) {
    constexpr size_t longest = 1 << 20; // what is longer is no row of ours
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
        return fmt::format("{0}.spool: expected a row of {0} to end at byte {1}, found none", path,
                           expected);
    }
    return spool.fault();
}

// Nothing is changed unless it is clear what to do.
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

// Its process was killed while it opened the log.
bool is_unused(const Spool &spool) {
    return agreed_bytes(spool.header()) == 0 && buffers_of(spool).empty();
}

emm_status cannot_write(const std::string &path) {
    return refuse("{}: cannot be written: {}", path, std::strerror(errno));
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
