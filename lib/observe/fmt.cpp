// fmt, compiled once: what its headers declare without FMT_HEADER_ONLY, for version 9.
#include <fmt/format-inl.h>

#include <locale>

namespace fmt::detail {

template thousands_sep_result<char> thousands_sep_impl<char>(locale_ref);
template char decimal_point_impl<char>(locale_ref);
template dragonbox::decimal_fp<float> dragonbox::to_decimal<float>(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal<double>(double) noexcept;
template std::locale locale_ref::get<std::locale>() const;

} // namespace fmt::detail
