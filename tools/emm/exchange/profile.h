#pragma once

#include "exchange/protobuf.h"
#include "exchange/timeline.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace emm::tool {

// A call in a stack. `line` 0: not known.
struct ProfileFrame {
    std::string file, function;
    uint64_t line = 0;
    bool is_python = false;
};

// The innermost first: the compiled caller, then the lines of Python.
std::vector<ProfileFrame> frames_of(const CallSite &site);

// A heap profile in pprof's format (profile.proto): values by stack, device, kind of memory and
// tag, of which the latter three are labels.
class Profile {
public:
    // A column of values: "inuse_space" in "bytes". pprof first shows the last column.
    struct Type {
        const char *name, *unit;
    };

    explicit Profile(const std::vector<Type> &types);

    // One value of each type. `tag` "": without a tag.
    void add(const std::vector<ProfileFrame> &frames, uint64_t device, std::string_view memory,
             const std::string &tag, const std::vector<uint64_t> &values);
    // A line that pprof shows with the profile.
    void comment(const std::string &text);

    // The file, in gzip format. `nanoseconds`: the time that it covers.
    std::string file(uint64_t nanoseconds);

private:
    uint64_t text(const std::string &text); // its number
    uint64_t mapping(const std::string &path);
    uint64_t function(const ProfileFrame &frame);
    uint64_t location(const ProfileFrame &frame);
    ProtobufMessage type(const Type &type);

    ProtobufMessage message_;
    std::vector<std::string> texts_ = {""};
    std::map<std::string, uint64_t> text_numbers_ = {{"", 0}};
    std::map<std::string, uint64_t> mappings_;
    std::map<std::pair<std::string, std::string>, uint64_t> functions_; // by file and name
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> locations_;       // by function and line
};

} // namespace emm::tool
