#pragma once

#include <emm/plugin.h>

#include <vector>

namespace emm::tool::check {

// A table, and create's texts for its options.
struct Member {
    const emm_plugin *table;
    std::vector<const char *> option_texts;
};

// A plugin and its layers upwards as one table, as emm serves a context with them: its functions
// call those of the outermost member that has them. The process has one; the members stay.
const emm_plugin *table_of_stack(std::vector<Member> members);

// The suite's slots, for the bottom of a layer without a plugin.
const emm_plugin &slots_of_the_suite();

// Copies a table up to its struct_size; half a slot counts as missing.
emm_plugin known_part_of(const emm_plugin &table);

} // namespace emm::tool::check
