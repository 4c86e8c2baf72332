// A spool of a killed process with changed bytes either becomes rows, or is refused, and then
// neither it nor the log has changed. Each patch is a part of the file (header, modules, the first
// chunk's front), a place in that part, a number of bytes, and the bytes.
#include "fuzz.h"
#include "observe/events/log_writer.h"
#include "observe/events/rows.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <unistd.h>

using namespace emm;

namespace {

std::string content(const std::string &path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    std::string bytes(static_cast<size_t>(file.tellg()), 0);
    file.seekg(0);
    require(!!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())), "it is read");
    return bytes;
}

void write_to(const std::string &path, const std::string &bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    require(!!file.write(bytes.data(), static_cast<std::streamsize>(bytes.size())),
            "it is written");
}

// A folder of this process, and in it the log whose spool is patched.
class Log {
public:
    Log() {
        char name[] = "/tmp/spool-fuzz-XXXXXX";
        require(mkdtemp(name), "there is a folder");
        folder_ = name;
        path = folder_ + "/log.csv";
        spool_path = path + ".spool";
        std::string reason;
        const auto spool = observe::Spool::create(spool_path, reason);
        require(spool != nullptr, reason.c_str());
        spool->header().ns_per_tick = 0.5;
        spool->header().csv_bytes[0] = observe::Rows::header.size();
        spool->add_line("1000 9000 1000 /nowhere/library\n");
        for (uint64_t i = 0; i < 3; ++i) {
            observe::EventRecord &record = spool->chunks()[0]->records[i];
            record = {};
            record.start = record.end = 100 * i;
            record.address = record.caller = 0x2000;
            record.type = static_cast<observe::EventType>(i);
        }
        spool->chunks()[0]->committed = 3;
        spool_bytes = content(spool_path);
    }
    Log(const Log &) = delete;
    Log &operator=(const Log &) = delete;
    ~Log() {
        unlink(path.c_str());
        unlink(spool_path.c_str());
        rmdir(folder_.c_str());
    }

    std::string path, spool_path, spool_bytes;

private:
    std::string folder_;
};

std::string patched(std::string bytes, const uint8_t *data, size_t size) {
    constexpr size_t patch = 11, begins[] = {0, 4096, size_t(256) << 10};
    for (; size >= patch; data += patch, size -= patch) {
        std::copy_n(data + 3, data[2] % 9, bytes.begin() + begins[data[0] % 3] + data[1]);
    }
    return bytes;
}

void check_rows(const std::string &text) {
    require(text.rfind(observe::Rows::header, 0) == 0, "the header is still there");
    require(text.back() == '\n', "the log ends with a whole row");
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
        const std::string_view row = std::string_view(text).substr(at, text.find('\n', at) - at);
        require(std::count(row.begin(), row.end(), ',') >= 11, "a row has all columns");
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const Log log;
    const std::string spool = patched(log.spool_bytes, data, size);
    const std::string before(observe::Rows::header);
    write_to(log.path, before);
    write_to(log.spool_path, spool);
    if (observe::recover_event_log(log.path) == EMM_OK) {
        require(access(log.spool_path.c_str(), F_OK) != 0, "the spool goes with a success");
        check_rows(content(log.path));
    } else {
        require(content(log.path) == before, "a refusal leaves the log alone");
        require(content(log.spool_path) == spool, "a refusal leaves the spool alone");
    }
    return 0;
}
