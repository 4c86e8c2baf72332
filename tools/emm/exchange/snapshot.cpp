#include "exchange/snapshot.h"

#include "exchange/conversion.h"
#include "observe/text.h"

#include <algorithm>
#include <fmt/format.h>

namespace emm::tool {
namespace {

using ValueKind = PickleValue::Kind;

constexpr uint64_t most_snapshot_devices = 1024;

// The names in a snapshot that are of use here.
constexpr std::string_view snapshot_names[] = {"segments",
                                               "device_traces",
                                               "action",
                                               "addr",
                                               "size",
                                               "stream",
                                               "time_us",
                                               "address",
                                               "total_size",
                                               "blocks",
                                               "state",
                                               "requested_size",
                                               "device",
                                               "alloc",
                                               "free_requested",
                                               "free_completed",
                                               "snapshot",
                                               "oom",
                                               "active_allocated",
                                               "device_free",
                                               "segment_alloc",
                                               "segment_free",
                                               "segment_map",
                                               "segment_unmap",
                                               "frames",
                                               "name",
                                               "filename",
                                               "line"};
constexpr size_t names_of_stacks = 4; // the last ones

// The number of a name.
consteval uint8_t key(std::string_view name) {
    uint8_t number = 0;
    while (snapshot_names[number] != name) {
        number++;
    }
    return number;
}

bool is_name(const PickleValue *value, uint8_t name) {
    return value && value->kind == ValueKind::name && value->payload == name;
}

} // namespace

Snapshot::Snapshot(const Pickle::Source &source, std::string name, std::optional<uint64_t> device,
                   bool with_stacks)
    : name_(std::move(name)),
      pickle_(source,
              std::span(snapshot_names)
                  .first(std::size(snapshot_names) - (with_stacks ? 0 : names_of_stacks)),
              key("action"), with_stacks) {
    try {
        pickle_.read();
    } catch (const Malformed &malformed) {
        throw bad_file(name_, fmt::format("byte {}", pickle_.offset()), malformed);
    }
    try {
        device_ = choose_device(devices(), device);
        const auto *const list = events();
        has_requests_ =
            list && std::any_of(list->begin(), list->end(), [&](const auto &event) {
                return event.kind == ValueKind::dictionary &&
                       is_name(pickle_.find(event, key("action")), key("free_requested"));
            });
    } catch (const Malformed &malformed) {
        throw bad_file(name_, "", malformed);
    }
}

// Null: no list has that name.
const std::vector<PickleValue> *Snapshot::list_of(const PickleValue &dictionary,
                                                  uint8_t name) const {
    const PickleValue *const found = pickle_.find(dictionary, name);
    return found && found->kind == ValueKind::list ? &pickle_.list(*found) : nullptr;
}

// An old snapshot is the list of its segments.
const PickleValue *Snapshot::segments() const {
    const PickleValue &root = pickle_.root();
    const PickleValue *const found =
        root.kind == ValueKind::dictionary ? pickle_.find(root, key("segments")) : &root;
    return found && found->kind == ValueKind::list ? found : nullptr;
}

// Devices with events or segments.
std::vector<uint64_t> Snapshot::devices() const {
    const PickleValue &root = pickle_.root();
    if (root.kind == ValueKind::list) {
        const std::vector<PickleValue> &parts = pickle_.list(root);
        if (std::any_of(parts.begin(), parts.end(), [this](const PickleValue &part) {
                return part.kind == ValueKind::dictionary &&
                       (pickle_.find(part, key("segments")) ||
                        pickle_.find(part, key("device_traces")));
            })) {
            throw Malformed("one snapshot, a rank's in a file of its own",
                            fmt::format("a list of {}", parts.size()));
        }
    }
    const bool is_dictionary = root.kind == ValueKind::dictionary;
    const auto *const traces = is_dictionary ? list_of(root, key("device_traces")) : nullptr;
    if (!traces && !segments()) {
        throw Malformed("device_traces or segments of a snapshot", "neither");
    }
    if (traces && traces->size() > most_snapshot_devices) {
        throw Malformed(fmt::format("at most {} devices", most_snapshot_devices),
                        std::to_string(traces->size()));
    }
    std::vector<uint64_t> found;
    for (size_t i = 0; traces && i < traces->size(); i++) {
        if ((*traces)[i].kind == ValueKind::list && !pickle_.list((*traces)[i]).empty()) {
            found.push_back(i);
        }
    }
    for (const PickleValue &segment :
         segments() ? pickle_.list(*segments()) : std::vector<PickleValue>()) {
        const uint64_t device =
            segment.kind == ValueKind::dictionary ? number_or(segment, key("device"), 0) : 0;
        if (std::find(found.begin(), found.end(), device) == found.end() &&
            found.size() < most_snapshot_devices) {
            found.push_back(device);
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

const std::vector<PickleValue> *Snapshot::events() const {
    const PickleValue &root = pickle_.root();
    const auto *const traces =
        root.kind == ValueKind::dictionary ? list_of(root, key("device_traces")) : nullptr;
    return traces && device_ < traces->size() && (*traces)[device_].kind == ValueKind::list
               ? &pickle_.list((*traces)[device_])
               : nullptr;
}

uint64_t Snapshot::number(const PickleValue &dictionary, uint8_t name) const {
    const PickleValue *const found = pickle_.find(dictionary, name);
    if (!found || found->kind != ValueKind::integer) {
        throw Malformed(fmt::format("a whole number for {}", snapshot_names[name]),
                        found ? "something else" : "none");
    }
    const bool may_be_negative = name == key("stream"); // a handle: its bits count
    if (found->is_negative && !may_be_negative) {
        throw Malformed(fmt::format("a whole number for {}", snapshot_names[name]),
                        std::to_string(static_cast<int64_t>(found->payload)));
    }
    return found->payload;
}

uint64_t Snapshot::number_or(const PickleValue &dictionary, uint8_t name,
                             uint64_t otherwise) const {
    return pickle_.find(dictionary, name) ? number(dictionary, name) : otherwise;
}

void Snapshot::visit(const Visit &visit) {
    const auto *const list = events();
    RecordedEvent totals;
    totals.reserved = segments_told().before;
    for (size_t i = 0; list && i < list->size(); i++) {
        try {
            if ((*list)[i].kind == ValueKind::dictionary) {
                visit_event((*list)[i], totals, visit);
            }
        } catch (const Malformed &malformed) {
            throw bad_file(name_, fmt::format("event {} of device {}", i + 1, device_), malformed);
        }
    }
}

// The growth of the reserved bytes, modulo 2^64. 0: no segment came or went.
uint64_t Snapshot::growth_of(const PickleValue &event) const {
    const PickleValue *const what = pickle_.find(event, key("action"));
    const bool comes = is_name(what, key("segment_alloc")) || is_name(what, key("segment_map"));
    const bool goes = is_name(what, key("segment_free")) || is_name(what, key("segment_unmap"));
    const uint64_t size = comes || goes ? number(event, key("size")) : 0;
    return comes ? size : uint64_t(0) - size;
}

Snapshot::Segments Snapshot::segments_told() const {
    try {
        return segments_of_events();
    } catch (const Malformed &malformed) {
        throw bad_file(name_, fmt::format("segments of device {}", device_), malformed);
    }
}

// The bytes before the events are those at the end less those taken meanwhile, and at least so many
// that the sum never falls below zero.
Snapshot::Segments Snapshot::segments_of_events() const {
    Segments told;
    uint64_t growth = 0, lowest = 0, end = 0;
    const auto *const list = events();
    for (const PickleValue &event : list ? *list : std::vector<PickleValue>()) {
        const uint64_t change = event.kind == ValueKind::dictionary ? growth_of(event) : 0;
        growth += change;
        lowest = static_cast<int64_t>(growth - lowest) < 0 ? growth : lowest;
        told.taken += static_cast<int64_t>(change) > 0;
        told.given_back += static_cast<int64_t>(change) < 0;
    }
    const PickleValue *const all = segments();
    for (const PickleValue &segment : all ? pickle_.list(*all) : std::vector<PickleValue>()) {
        if (segment.kind == ValueKind::dictionary &&
            number_or(segment, key("device"), 0) == device_) {
            end += number_or(segment, key("total_size"), 0);
            told.is_told = true;
        }
    }
    told.is_told = told.is_told || told.taken + told.given_back > 0;
    const auto before = static_cast<int64_t>(end - growth);
    told.before = static_cast<uint64_t>(
        std::max({int64_t(0), before, static_cast<int64_t>(uint64_t(0) - lowest)}));
    return told;
}

// A free counts from the program's call. The moment when PyTorch's allocator finds the memory
// reusable is that allocator's affair, as it is a plugin's.
void Snapshot::visit_event(const PickleValue &event, RecordedEvent &totals,
                           const Visit &visit) const {
    const PickleValue *const what = pickle_.find(event, key("action"));
    totals.reserved += growth_of(event);
    if (has_requests_ && is_name(what, key("free_requested"))) {
        totals.pending += number(event, key("size"));
    } else if (has_requests_ && is_name(what, key("free_completed"))) {
        totals.pending -= std::min(totals.pending, number(event, key("size")));
    }
    RecordedEvent row = totals;
    row.time = number_or(event, key("time_us"), 0);
    if (is_name(what, key("snapshot")) || is_name(what, key("oom"))) {
        row.is_failure = is_name(what, key("oom"));
        if (row.is_failure) {
            row.size = number_or(event, key("size"), 0);
            row.free = number_or(event, key("device_free"), 0);
            row.stream = number_or(event, key("stream"), 0);
            row.site = site_of(event);
        }
        visit(row);
        return;
    }
    const bool is_free =
        is_name(what, has_requests_ ? key("free_requested") : key("free_completed"));
    if (is_name(what, key("alloc")) || is_free) {
        row.op = is_free ? Op::free : Op::alloc;
        row.address = number(event, key("addr"));
        row.size = number(event, key("size"));
        row.stream = number_or(event, key("stream"), 0);
        row.site = site_of(event);
        visit(row);
    }
}

uint32_t Snapshot::site_of(const PickleValue &holder) const {
    const PickleValue *const frames = pickle_.find(holder, key("frames"));
    if (!frames || frames->kind != ValueKind::list) {
        return 0;
    }
    const auto [known, is_new] = site_numbers_.try_emplace(frames->payload, 0);
    if (is_new) {
        known->second = sites_.number_of(location_of(pickle_.list(*frames)));
    }
    return known->second;
}

namespace {

bool has_any(std::string_view name, std::initializer_list<std::string_view> parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](std::string_view part) { return name.find(part) != name.npos; });
}

// "f" of "f(int)"; a namespace without a name is in parentheses, too.
std::string without_arguments(std::string_view name) {
    constexpr std::string_view nameless = "(anonymous namespace)";
    size_t end = name.find('(');
    while (end != name.npos && name.substr(end).starts_with(nameless)) {
        end = name.find('(', end + nameless.size());
    }
    return std::string(name.substr(0, end));
}

// The functions of C++ of a stack without Python, as autograd's threads have them.
class CompiledStack {
public:
    void add(const std::string &name, std::string call) {
        // They look at the stack and take the memory, at the inner end of each.
        if (has_any(name, {"unwind::unwind", "CapturedTraceback", "gather_with_cpp",
                           "CachingAllocator", "at::detail::"})) {
            return;
        }
        const Rank rank = name.find("Backward") != name.npos && has_any(name, {"::apply("})
                              ? Rank::node
                          : has_any(name, {"at::_ops::"}) ? Rank::operation
                                                          : Rank::other;
        if (caller_.empty() || rank > rank_) {
            caller_ = without_arguments(name);
            rank_ = rank;
        }
        if (count_++ < most_calls) {
            calls_ += std::move(call);
        }
    }
    // A node of autograd's graph tells most, and an operator more than the functions that it calls.
    std::string location() const { return caller_ + calls_; }

private:
    enum class Rank : uint8_t { other, operation, node };

    Rank rank_ = Rank::other;
    size_t count_ = 0;
    std::string caller_, calls_;
};

} // namespace

// As in an event log: a compiled caller, which a snapshot does not have, and behind it the lines of
// Python, the innermost first. Without Python, a function of C++ is the caller.
std::string Snapshot::location_of(const std::vector<PickleValue> &frames) const {
    std::string python;
    CompiledStack compiled;
    size_t calls = 0;
    for (const PickleValue &frame : frames) {
        if (frame.kind != ValueKind::dictionary) {
            continue;
        }
        const auto text = [&](uint8_t name) {
            const PickleValue *const found = pickle_.find(frame, name);
            return found ? observe::one_line(std::string(pickle_.text_of(*found))) : "";
        };
        const PythonCall call = {text(key("filename")),
                                 std::to_string(number_or(frame, key("line"), 0)),
                                 text(key("name"))};
        std::string line = fmt::format("\t{}:{} ({})", call.file, call.line, call.function);
        if (call.is_compiled()) {
            compiled.add(call.function, std::move(line));
        } else if (calls++ < most_calls) {
            python += line;
        }
    }
    return python.empty() ? compiled.location() : python;
}

// For a block from before the recording, only this is told.
uint32_t Snapshot::site_of_block(const PickleValue &block) const {
    const uint32_t site = site_of(block);
    return site != 0 ? site : sites_.number_of("allocated before the recording");
}

std::vector<RecordedBlock> Snapshot::live_in_the_end() const {
    std::vector<RecordedBlock> blocks;
    size_t visited = 0;
    const PickleValue *const list = segments();
    for (size_t i = 0; list && i < pickle_.list(*list).size(); i++) {
        const PickleValue &segment = pickle_.list(*list)[i];
        try {
            if (segment.kind == ValueKind::dictionary &&
                number_or(segment, key("device"), 0) == device_) {
                add_blocks(segment, visited, blocks);
            }
        } catch (const Malformed &malformed) {
            throw bad_file(name_, fmt::format("segment {}", i + 1), malformed);
        }
    }
    return blocks;
}

// Blocks lie side by side; old snapshots do not tell where.
void Snapshot::add_blocks(const PickleValue &segment, size_t &visited,
                          std::vector<RecordedBlock> &blocks) const {
    const auto *const list = list_of(segment, key("blocks"));
    uint64_t at = number(segment, key("address"));
    const uint64_t stream = number_or(segment, key("stream"), 0);
    for (size_t i = 0; list && i < list->size(); i++) {
        if (++visited > pickle_.values()) {
            throw Malformed("blocks of its own", "those of other segments again and again");
        }
        const PickleValue &block = (*list)[i];
        if (block.kind != ValueKind::dictionary) {
            continue;
        }
        const uint64_t size = number(block, key("size"));
        if (is_name(pickle_.find(block, key("state")), key("active_allocated"))) {
            blocks.push_back({number_or(block, key("address"), at),
                              number_or(block, key("requested_size"), size), stream,
                              site_of_block(block)});
        }
        if (__builtin_add_overflow(at, size, &at)) {
            throw Malformed("blocks that memory has room for", "larger ones");
        }
    }
}

} // namespace emm::tool
