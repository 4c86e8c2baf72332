#include "top/process.h"

#include "monitor/protocol.h"
#include "observe/read_write.h"
#include "observe/text.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <set>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <utility>

namespace emm::tool::top {

std::string program_of(int64_t pid) {
    std::string name = observe::text_of_file(fmt::format("/proc/{}/comm", pid));
    name.erase(name.find_last_not_of('\n') + 1);
    return observe::one_line(name);
}

bool is_of_this_user(int64_t pid) {
    struct stat status;
    return stat(fmt::format("/proc/{}", pid).c_str(), &status) == 0 && status.st_uid == geteuid();
}

// "PID (NAME) STATE ...", where the name may have any bytes.
bool is_stopped(int64_t pid) {
    const std::string text = observe::text_of_file(fmt::format("/proc/{}/stat", pid));
    const size_t end = text.rfind(')');
    return end != std::string::npos && end + 2 < text.size() &&
           (text[end + 2] == 'T' || text[end + 2] == 't');
}

namespace {

constexpr unsigned listens = 0x10000; // __SO_ACCEPTCON

std::string_view take_field(std::string_view &line) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const std::string_view field = line.substr(0, line.find(' '));
    line.remove_prefix(field.size());
    return field;
}

bool is_hexadecimal(char byte) {
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
}

// "emm-top-PID-RANDOM"
bool read_name(std::string_view text, Name &ret_name) {
    if (text.substr(0, monitor::name_prefix.size()) != monitor::name_prefix) {
        return false;
    }
    const std::string_view rest = text.substr(monitor::name_prefix.size());
    const char *const end = rest.data() + rest.size();
    const auto [after, error] = std::from_chars(rest.data(), end, ret_name.claimed_pid);
    ret_name.text = text;
    return error == std::errc() && ret_name.claimed_pid > 0 && after != end && *after == '-' &&
           end - after == 1 + static_cast<long>(monitor::random_digits) &&
           std::all_of(after + 1, end, is_hexadecimal);
}

// "Num: RefCount Protocol Flags Type St Inode @emm-top-..."
bool read_line(std::string_view line, Name &ret_name) {
    std::string_view fields[7];
    for (std::string_view &field : fields) {
        field = take_field(line);
    }
    unsigned flags = 0;
    std::from_chars(fields[3].data(), fields[3].data() + fields[3].size(), flags, 16);
    return (flags & listens) != 0 && line.substr(0, 2) == " @" &&
           read_name(line.substr(2), ret_name);
}

} // namespace

std::vector<Name> names_in(std::string_view table) {
    std::vector<Name> names;
    std::set<std::string> known;
    while (!table.empty()) {
        const size_t end = std::min(table.find('\n'), table.size());
        Name name;
        if (read_line(table.substr(0, end), name) && known.insert(name.text).second) {
            names.push_back(std::move(name));
        }
        table.remove_prefix(std::min(end + 1, table.size()));
    }
    return names;
}

namespace {

using Key = std::tuple<std::string, uint64_t, std::string>;

std::optional<double> rate(const Context &before, const Context &now) {
    if (!before.stats || !now.stats || now.at <= before.at ||
        now.stats->allocations < before.stats->allocations) {
        return std::nullopt;
    }
    const auto count = static_cast<double>(now.stats->allocations - before.stats->allocations);
    return count * 1e9 / static_cast<double>(now.at - before.at);
}

} // namespace

void find_rates(const std::vector<Process> &before, std::vector<Process> &ret_now) {
    std::map<Key, const Context *> known;
    for (const Process &process : before) {
        for (const Context &context : process.contexts) {
            known[{process.name, context.id, context.pool}] = &context;
        }
    }
    for (Process &process : ret_now) {
        for (Context &context : process.contexts) {
            const auto found = known.find({process.name, context.id, context.pool});
            if (found != known.end()) {
                context.allocations_rate = rate(*found->second, context);
            }
        }
    }
}

} // namespace emm::tool::top
