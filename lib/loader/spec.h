#pragma once

#include <emm/status.h>

#include <string>
#include <string_view>
#include <vector>

namespace emm::loader {

struct Setting {
    std::string key, value;
};

// One plugin as EMM_PLUGIN names it: name | /absolute/path.so [ ":" key "=" value { "," ... } ],
// behind its layers, each: name [ ":" key "=" value { "," ... } ] "+"
struct Spec {
    std::string text; // as written
    std::string name; // a bare name or an absolute path, decoded
    bool is_path = false;
    std::vector<Setting> settings;
    std::vector<Spec> layers;  // the outermost first
    bool is_described = false; // not to be served: options without settings are not checked
};

// Reads "spec;spec;...". In names, paths and values `: ; , = % +` are written %3A %3B %2C %3D %25
// %2B; a '+' needs this only before the plugin, where it separates layers. An error names the
// column.
emm_status parse_specs(std::string_view text, std::vector<Spec> &ret_specs);

// Reads the text behind the colon of a spec; an empty text means no settings.
emm_status parse_settings(std::string_view text, std::vector<Setting> &ret_settings);

} // namespace emm::loader
