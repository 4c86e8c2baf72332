#include "exchange/profile.h"

#include <charconv>
#include <utility>

namespace emm::tool {
namespace {

// The written fields of profile.proto, by message.
namespace field {
enum Profile : uint32_t {
    sample_type = 1,
    sample = 2,
    mapping = 3,
    location = 4,
    function = 5,
    string_table = 6,
    duration_nanos = 10,
    period_type = 11,
    period = 12,
    comment = 13,
    default_sample_type = 14
};
enum ValueType : uint32_t { type = 1, unit = 2 };
enum Sample : uint32_t { location_id = 1, value = 2, label = 3 };
enum Label : uint32_t { key = 1, str = 2 };
enum Mapping : uint32_t {
    mapping_id = 1,
    mapping_filename = 5,
    has_functions = 7,
    has_filenames = 8,
    has_line_numbers = 9,
    has_inline_frames = 10
};
enum Location : uint32_t { own_id = 1, in_mapping = 2, line = 4 };
enum Line : uint32_t { function_id = 1, line_number = 2 };
enum Function : uint32_t { id = 1, name = 2, system_name = 3, filename = 4 };
} // namespace field

// "step(int)+0x42" is a place in step(int), and "0x42" a place in the file.
std::string function_of(const CallSite &site) {
    const size_t sign = site.function.rfind("+0x");
    return site.function.starts_with("0x") && !site.file.empty()
               ? site.file.substr(site.file.rfind('/') + 1) + "+" + site.function
           : sign == std::string::npos ? site.function
                                       : site.function.substr(0, sign);
}

} // namespace

std::vector<ProfileFrame> frames_of(const CallSite &site) {
    std::vector<ProfileFrame> frames;
    if (!site.file.empty() || !site.function.empty()) {
        frames.push_back({site.file, function_of(site)});
    }
    for (const PythonCall &call : site.calls) {
        uint64_t line = 0;
        std::from_chars(call.line.data(), call.line.data() + call.line.size(), line);
        frames.push_back({call.file, call.function, line, !call.is_compiled()});
    }
    return frames;
}

// A sampled profile would have its rate as the period; here every byte is counted.
Profile::Profile(const std::vector<Type> &types) {
    for (const Type &each : types) {
        message_.message(field::sample_type, type(each));
    }
    message_.message(field::period_type, type({"space", "bytes"}));
    message_.number(field::period, 1);
    message_.number(field::default_sample_type, text(types.back().name));
}

void Profile::add(const std::vector<ProfileFrame> &frames, uint64_t device, std::string_view memory,
                  const std::string &tag, const std::vector<uint64_t> &values) {
    std::vector<uint64_t> stack;
    for (const ProfileFrame &frame : frames) {
        stack.push_back(location(frame));
    }
    if (stack.empty()) {
        stack.push_back(location({"", "(caller not known)"}));
    }
    ProtobufMessage sample;
    sample.numbers(field::location_id, stack);
    sample.numbers(field::value, values);
    for (const auto &[key, value] :
         {std::pair("device", std::to_string(device)), std::pair("memory", std::string(memory)),
          std::pair("tag", tag)}) {
        if (value.empty()) {
            continue;
        }
        ProtobufMessage label;
        label.number(field::key, text(key));
        label.number(field::str, text(value));
        sample.message(field::label, label);
    }
    message_.message(field::sample, sample);
}

void Profile::comment(const std::string &line) {
    message_.number(field::comment, text(line));
}

std::string Profile::file(uint64_t nanoseconds) {
    ProtobufMessage whole = message_;
    whole.all_texts(field::string_table, texts_);
    whole.number(field::duration_nanos, nanoseconds);
    return as_gzip(whole.bytes());
}

uint64_t Profile::text(const std::string &text) {
    const auto [found, is_new] = text_numbers_.try_emplace(text, texts_.size());
    if (is_new) {
        texts_.push_back(text);
    }
    return found->second;
}

// A library, all of whose names are in the profile: pprof does not look for names itself.
uint64_t Profile::mapping(const std::string &path) {
    const auto [found, is_new] = mappings_.try_emplace(path, mappings_.size() + 1);
    if (is_new) {
        ProtobufMessage mapping;
        mapping.number(field::mapping_id, found->second);
        mapping.number(field::mapping_filename, text(path));
        for (const uint32_t has : {field::has_functions, field::has_filenames,
                                   field::has_line_numbers, field::has_inline_frames}) {
            mapping.number(has, 1);
        }
        message_.message(field::mapping, mapping);
    }
    return found->second;
}

uint64_t Profile::function(const ProfileFrame &frame) {
    const auto [found, is_new] =
        functions_.try_emplace({frame.file, frame.function}, functions_.size() + 1);
    if (is_new) {
        ProtobufMessage function;
        function.number(field::id, found->second);
        function.number(field::name, text(frame.function));
        function.number(field::system_name, text(frame.function));
        function.number(field::filename, text(frame.file));
        message_.message(field::function, function);
    }
    return found->second;
}

uint64_t Profile::location(const ProfileFrame &frame) {
    const uint64_t in_function = function(frame);
    const auto [found, is_new] =
        locations_.try_emplace({in_function, frame.line}, locations_.size() + 1);
    if (is_new) {
        ProtobufMessage line, location;
        line.number(field::function_id, in_function);
        line.number(field::line_number, frame.line);
        location.number(field::own_id, found->second);
        if (!frame.is_python && !frame.file.empty()) {
            location.number(field::in_mapping, mapping(frame.file));
        }
        location.message(field::line, line);
        message_.message(field::location, location);
    }
    return found->second;
}

ProtobufMessage Profile::type(const Type &type) {
    ProtobufMessage message;
    message.number(field::type, text(type.name));
    message.number(field::unit, text(type.unit));
    return message;
}

} // namespace emm::tool
