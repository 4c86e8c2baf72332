#include "top/names.h"

#include "monitor/protocol.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace emm::tool::top {
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

} // namespace emm::tool::top
