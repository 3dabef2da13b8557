#pragma once

// weft::text: tokenizers and chat templates. All public headers of this area.
#include "weft/text/chat_template.h"
#include "weft/text/tokenizer/tokenizer.h"
#include "weft/text/tokenizer_json/tokenizer_folder.h"
