#pragma once

#include <string>
#include <string_view>

namespace weft::text {

/// Unicode normalization form C of valid UTF-8, as the `tokenizers` package's NFC normalizer does
/// it. Linear but for runs of combining marks, which are sorted.
std::string normalize_nfc(std::string_view text);
/// The same for normalization forms D, KC and KD.
std::string normalize_nfd(std::string_view text);
std::string normalize_nfkc(std::string_view text);
std::string normalize_nfkd(std::string_view text);

}  // namespace weft::text
