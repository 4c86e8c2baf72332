#pragma once

#include "exchange/conversion.h"

#include <string>
#include <string_view>

namespace emm::tool {

// The log of RMM's logging_resource_adaptor, a CSV. Reads the file once for each visit.
class RmmLog : public Recording {
public:
    static constexpr std::string_view header = "Thread,Time,Action,Pointer,Size,Stream";
    static constexpr std::string_view how_to_unmix =
        "; grep -E '^(Thread,Time,|[0-9]+,[0-9:.]+,)' FILE keeps the log's own lines";

    // Called with the share of the file that has been read.
    using Report = std::function<void(double)>;

    RmmLog(std::string path, std::string name, Report report = {})
        : path_(std::move(path)), name_(std::move(name)), report_(std::move(report)) {}

    void visit(const Visit &visit) override;
    const char *kind() const override { return "RMM log"; }

private:
    const std::string path_, name_;
    const Report report_;
};

// One line behind the header; nothing if it changed no memory. The time is a time of day. Throws
// Malformed.
std::optional<RecordedEvent> rmm_event(std::string_view line);

} // namespace emm::tool
