#pragma once

#include "loader/plugin.h"
#include "loader/search.h"
#include "loader/spec.h"

namespace emm::loader {

// Loads the plugin that `spec` names, or finds it loaded already, and checks the options. A refusal
// is one sentence in the thread's last error, with its stage: resolve, permission, elf, dlopen,
// symbol, negotiate or validate. `host` and `defaults` live as long as the process; the plugin's
// NULL slots are filled from `defaults`. `selected_by` names the source for the log, such as
// "EMM_PLUGIN". One thread at a time loads. The caller's lock makes other threads wait, and refuses
// a plugin whose entry function calls back.
emm_status load(const Search &search, const Spec &spec, std::string selected_by,
                const emm_host &host, const emm_plugin &defaults, Selection &ret_selection);
emm_status load(const Spec &spec, std::string selected_by, const emm_host &host,
                const emm_plugin &defaults, Selection &ret_selection);

// The same for a plugin that is linked into the program.
emm_status load_entry(emm_plugin_entry entry, const std::vector<Setting> &settings,
                      std::string selected_by, const emm_host &host, const emm_plugin &defaults,
                      Selection &ret_selection);

// The plugin of `base`, with the option values of `base` except those in `settings`. Calls no
// plugin.
emm_status derive(const Selection &base, const std::vector<Setting> &settings,
                  Selection &ret_selection);

// Calls the plugin's own check of the values.
emm_status check_selection(const emm_host &host, const Selection &selection);

// The first option whose values differ between two selections of one plugin; NULL: none.
const emm_option *find_difference(const Selection &one, const Selection &other) noexcept;

} // namespace emm::loader
