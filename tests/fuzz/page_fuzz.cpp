// Any file is either an event log or a trace, from which the page of emm report can be made, or is
// refused in a sentence.
#include "exchange/conversion.h"
#include "file.h"
#include "json.h"
#include "problem.h"
#include "report/document.h"
#include "report/history.h"
#include "report/page.h"

using namespace emm::tool;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const MemoryFile file(data, size);
    const auto ignore = [](double) {};
    try {
        const Recorded recorded = read_recorded(Input(file.path()), {}, ignore);
        const std::string page = script_json(document_of("some", recorded, {}, ignore));
        require(page.find('<') == std::string::npos,
                "no text of the log can end the page's script");
    } catch (const Failure &failure) {
        require_sentence(failure.what());
    }
    return 0;
}
