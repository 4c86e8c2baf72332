#include "observe/error.h"
#include "observe/events/event_log.h"
#include "observe/events/scribe.h"
#include "observe/events/spool.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <unistd.h>

namespace emm::observe {
namespace {

class File {
public:
    explicit File(int number) : number_(number) {}
    ~File() {
        if (number_ >= 0) {
            close(number_);
        }
    }
    File(const File &) = delete;
    File &operator=(const File &) = delete;
    int number() const { return number_; }

private:
    const int number_;
};

std::vector<std::vector<Chunk *>> lanes_of(const Spool &spool) {
    std::map<uint32_t, std::vector<Chunk *>> lanes;
    for (Chunk *chunk : spool.chunks()) {
        if (chunk->committed.load(std::memory_order_relaxed) != 0) {
            lanes[chunk->lane].push_back(chunk);
        }
    }
    std::vector<std::vector<Chunk *>> all;
    for (auto &[number, chunks] : lanes) {
        std::sort(chunks.begin(), chunks.end(), [](const Chunk *one, const Chunk *other) {
            return one->sequence < other->sequence;
        });
        all.push_back(std::move(chunks));
    }
    return all;
}

// What is in the log already is where the counts go on from.
void resume(Rows &rows, const std::string &path) {
    std::ifstream file(path);
    for (std::string row; std::getline(file, row);) {
        rows.resume(row);
    }
}

} // namespace

emm_status recover_event_log(const std::string &path) {
    std::string reason;
    bool busy = false;
    const std::unique_ptr<Spool> spool = Spool::open(path + ".spool", reason, busy);
    if (!spool) {
        return reason.empty() ? EMM_OK : fail(busy ? EMM_E_BUSY : EMM_E_INVALID_VALUE, 0, reason);
    }
    const SpoolHeader &header = spool->header();
    const uint64_t bytes = header.csv_bytes[header.epoch.load(std::memory_order_relaxed) & 1];
    const File csv(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (csv.number() < 0 || ftruncate(csv.number(), static_cast<off_t>(bytes)) != 0 ||
        lseek(csv.number(), 0, SEEK_END) < 0) {
        return fail(EMM_E_INVALID_VALUE, 0, path + ": cannot be written: " + std::strerror(errno));
    }
    Scribe scribe(*spool, csv.number());
    resume(scribe.rows(), path);
    if (!scribe.write(lanes_of(*spool), ~uint64_t(0))) {
        return fail(EMM_E_INVALID_VALUE, 0, path + ": cannot be written: " + std::strerror(errno));
    }
    spool->unlink();
    return EMM_OK;
}

} // namespace emm::observe
