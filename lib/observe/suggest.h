#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace emm::observe {

// "did you mean 'WORD'?" with the word that `text` was probably meant to be, in whatever case;
// "" if none is close.
std::string suggestion(std::string_view text, const std::vector<std::string> &words);

// "a, b, c", sorted, each once.
std::string listed(std::vector<std::string> words);

} // namespace emm::observe
