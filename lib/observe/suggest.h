#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace emm::observe {

// The word that `text` was probably meant to be, in upper or lower case; NULL if none is close.
const std::string *closest(std::string_view text, const std::vector<std::string> &words);

// "did you mean 'WORD'?" with that word; "" if none is close.
std::string suggestion(std::string_view text, const std::vector<std::string> &words);

// The size that a text in wrong units probably means: 1GiB for 1GB, 1 GiB or 1g. "" if the text is
// no size.
std::string meant_size(const std::string &text);

// "a, b, c", sorted, each once.
std::string listed(std::vector<std::string> words);

} // namespace emm::observe
