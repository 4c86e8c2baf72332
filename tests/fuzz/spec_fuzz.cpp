// Any text is either a list of specs that reads the same after being written again, or an error
// that names a column of the text.
#include "fuzz.h"
#include "loader/spec.h"
#include "loader/text.h"
#include "observe/error.h"

#include <algorithm>
#include <string>
#include <string_view>

using namespace emm;

namespace {

std::string written(const loader::Spec &spec) {
    std::string text;
    for (const loader::Spec &layer : spec.layers) {
        text += written(layer) + "+";
    }
    text += loader::encode(spec.name);
    const char *separator = ":";
    for (const loader::Setting &setting : spec.settings) {
        text += separator + setting.key + "=" + loader::encode(setting.value);
        separator = ",";
    }
    return text;
}

bool same(const loader::Spec &a, const loader::Spec &b) {
    if (a.name != b.name || a.is_path != b.is_path || a.settings.size() != b.settings.size() ||
        !std::equal(a.layers.begin(), a.layers.end(), b.layers.begin(), b.layers.end(), same)) {
        return false;
    }
    for (size_t i = 0; i < a.settings.size(); ++i) {
        if (a.settings[i].key != b.settings[i].key || a.settings[i].value != b.settings[i].value) {
            return false;
        }
    }
    return true;
}

void check_refusal(size_t size) {
    const std::string text = observe::last_error()->text;
    const std::string word = "', column ";
    const size_t at = text.rfind(word);
    require(at != std::string::npos, "a refusal names a column");
    const size_t column = std::stoul(text.substr(at + word.size()));
    require(column >= 1 && column <= size + 1, "the column lies in the text");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string_view text(reinterpret_cast<const char *>(data), size);
    std::vector<loader::Spec> specs;
    if (loader::parse_specs(text, specs) != EMM_OK) {
        require(specs.empty(), "a refusal leaves the output alone");
        check_refusal(size);
        return 0;
    }
    require(!specs.empty(), "a success has a spec");
    for (const loader::Spec &spec : specs) {
        std::vector<loader::Spec> again;
        require(loader::parse_specs(written(spec), again) == EMM_OK && again.size() == 1 &&
                    same(spec, again.front()),
                "a spec reads the same after being written again");
    }
    return 0;
}
