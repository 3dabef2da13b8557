#pragma once

#include <cstdint>
#include <string>

namespace weft::train {

/// A number in three digits with k, M, G or T: "12.3 k", "135 M", "999".
std::string count_text(double number);
/// Bytes in three digits in powers of 1000: "1.23 GB", "0 B".
std::string bytes_text(double bytes);
/// Seconds in two units: "42 s", "3 min 05 s", "2 h 05 min", "3 d 04 h"; in three digits below ten:
/// "4.21 s", "420 ms"; "–" for what is not finite.
std::string duration_text(double seconds);
/// Whole numbers with commas: "1,234,567".
std::string grouped_text(int64_t number);
/// `number` with this many digits after the point.
std::string fixed_text(double number, int digits);

}  // namespace weft::train
