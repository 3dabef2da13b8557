#include "weft/text/tokenizer/text_steps.h"

#include <algorithm>
#include <memory>

#include "weft/core/error.h"
#include "weft/text/tokenizer/scanners.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {

TextFinder literal_finder(std::string literal) {
  return [literal = std::move(literal)](std::string_view text) {
    std::vector<TextSpan> spans;
    for (size_t at = text.find(literal); at != text.npos;
         at = text.find(literal, at + literal.size())) {
      spans.push_back({at, at + literal.size()});
    }
    return spans;
  };
}

TextFinder regex_finder(Regex regex) {
  return [regex = std::make_shared<const Regex>(std::move(regex))](std::string_view text) {
    return regex->find_all(text);
  };
}

TextFinder class_finder(uint16_t mask) {
  return [mask](std::string_view text) {
    std::vector<TextSpan> spans;
    for (size_t at = 0; at < text.size();) {
      const Utf8Step step = utf8_step(text.substr(at));
      if ((unicode_class(step.code) & mask) != 0) spans.push_back({at, at + step.size});
      at += step.size;
    }
    return spans;
  };
}

namespace {

std::string replaced(std::string_view text, const std::vector<TextSpan>& spans,
                     const std::string& content) {
  std::string out;
  out.reserve(text.size());
  size_t end = 0;
  for (const TextSpan& span : spans) {
    out += text.substr(end, span.begin - end);
    out += content;
    end = span.end;
  }
  out += text.substr(end);
  return out;
}

struct Part {
  TextSpan span;
  bool is_match = false;
};

// The spans found and those between them.
std::vector<Part> parts_of(std::string_view text, const std::vector<TextSpan>& spans,
                           bool inverted) {
  std::vector<Part> parts;
  size_t end = 0;
  for (const TextSpan& span : spans) {
    if (span.begin > end) parts.push_back({{end, span.begin}, inverted});
    parts.push_back({span, !inverted});
    end = span.end;
  }
  if (end < text.size()) parts.push_back({{end, text.size()}, inverted});
  return parts;
}

bool joins_previous(SplitBehavior behavior, bool is_match, bool previous) {
  if (behavior == SplitBehavior::kContiguous) return is_match == previous;
  return behavior == SplitBehavior::kMergedWithPrevious && is_match && !previous;
}

// A match joins the part after it; of several matches in a row only the last one does.
void merge_with_next(std::vector<Part>& parts) {
  size_t out = parts.size();
  bool previous = false;
  for (size_t i = parts.size(); i-- > 0;) {
    const Part part = parts[i];
    if (part.is_match && !previous && out < parts.size()) {
      parts[out].span.begin = part.span.begin;
    } else {
      parts[--out] = part;
    }
    previous = part.is_match;
  }
  parts.erase(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(out));
}

void apply_behavior(std::vector<Part>& parts, SplitBehavior behavior) {
  if (behavior == SplitBehavior::kRemoved) {
    std::erase_if(parts, [](const Part& part) { return part.is_match; });
    return;
  }
  if (behavior == SplitBehavior::kMergedWithNext) {
    merge_with_next(parts);
    return;
  }
  size_t out = 0;
  bool previous = false;
  for (const Part part : std::vector<Part>(parts)) {
    if (out > 0 && joins_previous(behavior, part.is_match, previous)) {
      parts[out - 1].span.end = part.span.end;
    } else {
      parts[out++] = part;
    }
    previous = part.is_match;
  }
  parts.resize(out);
}

}  // namespace

std::string apply_steps(const std::vector<TextStep>& steps, std::string text) {
  // U+FDFA, 3 bytes, has 33 in compatibility form, more with marks for the spaces.
  constexpr size_t kMaxGrowth = 16, kAlwaysAllowed = 1024;
  const size_t size = text.size(), most = size * kMaxGrowth + kAlwaysAllowed;
  for (const TextStep& step : steps) {
    text = step(std::move(text));
    core::check<core::ConfigError>(
        text.size() <= most, "text.Tokenizer: normalizer: makes ", text.size(),
        " bytes of a text of ", size, ", expected at most ", kMaxGrowth,
        " times as many; the tokenizer's file is damaged, fetch it again");
  }
  return text;
}

TextStep prepend_step(std::string prefix) {
  return [prefix = std::move(prefix)](std::string text) {
    return text.empty() ? text : prefix + text;
  };
}

TextStep replace_step(TextFinder find, std::string content) {
  return [find = std::move(find), content = std::move(content)](const std::string& text) {
    return replaced(text, find(text), content);
  };
}

TextStep strip_step(bool left, bool right) {
  return [left, right](const std::string& text) {
    const std::vector<Char> chars = decode_chars(text);
    size_t begin = 0, end = chars.size();
    while (left && begin < end && chars[begin].is(kSpace)) ++begin;
    while (right && end > begin && chars[end - 1].is(kSpace)) --end;
    const auto offset = [&](size_t i) { return i < chars.size() ? chars[i].offset : text.size(); };
    return text.substr(offset(begin), offset(end) - offset(begin));
  };
}

PieceStep split_step(TextFinder find, SplitBehavior behavior, bool inverted) {
  return [find = std::move(find), behavior, inverted](Pieces& pieces) {
    std::vector<Piece> out;
    for (const Piece& piece : pieces.list) {
      std::vector<Part> parts = parts_of(piece.text, find(piece.text), inverted);
      if (behavior != SplitBehavior::kIsolated) apply_behavior(parts, behavior);
      for (const Part& part : parts) {
        const std::string_view text =
            piece.text.substr(part.span.begin, part.span.end - part.span.begin);
        if (!text.empty()) out.push_back({text, piece.is_first && part.span.begin == 0});
      }
    }
    pieces.list = std::move(out);
  };
}

PieceStep prefix_step(std::string prefix, bool only_first) {
  return [prefix = std::move(prefix), only_first](Pieces& pieces) {
    for (Piece& piece : pieces.list) {
      if (piece.text.starts_with(prefix) || (only_first && !piece.is_first)) continue;
      piece.text = pieces.owned.emplace_back(prefix + std::string(piece.text));
    }
  };
}

PieceStep replace_in_pieces_step(TextFinder find, std::string content) {
  return [find = std::move(find), content = std::move(content)](Pieces& pieces) {
    for (Piece& piece : pieces.list) {
      const std::vector<TextSpan> spans = find(piece.text);
      if (!spans.empty())
        piece.text = pieces.owned.emplace_back(replaced(piece.text, spans, content));
    }
  };
}

}  // namespace weft::text
