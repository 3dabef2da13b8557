#pragma once

// weft::generate: prompts to tokens. All public headers of this area.
#include "weft/generate/batch.h"
#include "weft/generate/engine.h"
#include "weft/generate/logprobs.h"
#include "weft/generate/options.h"
#include "weft/generate/sampler.h"
#include "weft/generate/scoring/divergence.h"
#include "weft/generate/scoring/perplexity.h"
#include "weft/generate/text_generator.h"
