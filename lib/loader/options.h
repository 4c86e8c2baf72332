#pragma once

#include "loader/mapped.h"
#include "loader/plugin.h"
#include "loader/spec.h"

namespace emm::loader {

// Checks a plugin's own list of options, which must lie in `memory` with its texts. Copies it, with
// the NULL name at its end, to ret_plugin.options.
emm_status check_options(const Mapped &memory, const emm_option *options, Plugin &ret_plugin);

// Each option's value if none is set: the default, else NULL. These texts, and those of
// apply_settings, live as long as the process.
std::vector<const char *> default_values(const Plugin &plugin);

// Checks settings against the plugin's list, and puts their values into `texts`, which has one
// entry for each option, in the order of the list.
emm_status apply_settings(const Plugin &plugin, const std::vector<Setting> &settings,
                          std::vector<const char *> &texts);

// Checks the change of one option while its manager serves, as apply_settings does. `text` NULL:
// its default. *ret_text is the text for the plugin; it lives as long as `text` and the plugin.
emm_status check_change(const Plugin &plugin, const char *key, const char *text,
                        const char *&ret_text);

// Whether two values of the option, or NULL for none, mean the same: 10MiB and 10240KiB do.
bool is_same_value(const emm_option &option, const char *one, const char *other) noexcept;

// Calls the plugin's check_options.
emm_status check_values(const Plugin &plugin, const emm_host &host,
                        const std::vector<const char *> &texts);

} // namespace emm::loader
