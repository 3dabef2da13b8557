#!/usr/bin/env python3
"""Trains a small Llama from nothing to add, and counts exact answers to sums that it has not seen:
examples/train/arithmetic.py OUT [--digits N] [--steps N] [WEFT'S FLAGS]

An answer is written from its last digit on, as one adds by hand: 275+816=1901 for 1091.
"""

import random

import common


def sum_of(pair, digits):
    a, b = pair
    answer = str(a + b).zfill(digits + 1)
    return {"prompt": f"{a:0{digits}}+{b:0{digits}}=", "completion": answer[::-1]}


def problems(digits, num_train, num_held_out):
    """Pairs of numbers, none twice."""
    numbers = 10**digits
    chosen = random.Random(1).sample(range(numbers**2), num_train + num_held_out)
    sums = [sum_of(divmod(number, numbers), digits) for number in chosen]
    return sums[num_held_out:], sums[:num_held_out]


def main():
    parser = common.parse_flags(__doc__.splitlines()[0], steps=2000, target=99)
    parser.add_argument("--digits", type=int, default=3)
    flags, more = parser.parse_known_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    train, held_out = problems(flags.digits, min(60_000, 10 ** (2 * flags.digits) * 4 // 5),
                               flags.held_out or 500)
    common.write_lines(flags.out / "train.jsonl", train)
    # Sequences of whole problems: eight of a sum, its answer and an end.
    common.train(flags, "train", "arithmetic.toml", more, WEFT_MODEL_TOKENIZER=str(common.BYTES),
                 WEFT_BATCH_SEQUENCE_LENGTH=str(8 * (3 * flags.digits + 4)))
    common.weft(flags, "convert", flags.out / "run", flags.out / "model")

    def answer(problem):
        return common.weft(flags, "generate", flags.out / "model", "-p", problem["prompt"],
                           "-n", flags.digits + 2, "-t", 1).strip()

    answers = common.ask_all(held_out, answer)
    wrong = [(problem["prompt"] + given, problem["completion"])
             for problem, given in zip(held_out, answers) if given != problem["completion"]]
    for given, right in wrong[:5]:
        print(f"wrong: {given}, right is {right}")
    share = 100 * (1 - len(wrong) / len(held_out))
    common.finish(f"{share:.1f} % of {len(held_out)} held-out sums exact, target {flags.target} %",
                  share >= flags.target)


main()
