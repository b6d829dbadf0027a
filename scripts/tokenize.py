#!/usr/bin/env python3
"""Tokenizes text with a Hugging Face tokenizer and writes a shard, through `flamia data write`.

    scripts/tokenize.py --tokenizer gpt2 --out train.bin text1.txt text2.txt
    scripts/tokenize.py --tokenizer tokenizer.json --jsonl text --out train.bin documents.jsonl

Each text file is a document, or each of its pieces between lines that equal --delimiter; with --jsonl FIELD each line of a file is a JSON
object whose FIELD is a document. "-" is standard input. --end-of-text TOKEN puts that token in front of each document, as llm.c does, and
records its id. If anything fails, no shard is left. Needs the package tokenizers (pip install tokenizers) and build/flamia.
"""
import os
import sys

# This file's folder would hide Python's own module tokenize behind this file.
sys.path = [folder for folder in sys.path if os.path.abspath(folder) != os.path.dirname(os.path.abspath(__file__))]

import argparse  # noqa: E402
import array  # noqa: E402
import json  # noqa: E402
import subprocess  # noqa: E402

SEPARATOR = 0xFFFFFFFF
BATCH = 256  # documents tokenized at a time


class Failure(Exception):
    """One line for the user."""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--tokenizer", required=True, help="a tokenizer.json, or a name on the Hugging Face hub")
    parser.add_argument("--name", help="what the shard calls the tokenizer; if not given, the last part of --tokenizer that is not tokenizer.json")
    parser.add_argument("--out", required=True, help="the shard")
    parser.add_argument("--jsonl", metavar="FIELD", help="files hold a JSON object a line, its FIELD is the text")
    parser.add_argument("--delimiter", metavar="LINE", help="a line that ends a document in a text file")
    parser.add_argument("--end-of-text", metavar="TOKEN", help="token put in front of each document")
    parser.add_argument("--flamia", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "flamia"))
    arguments = parser.parse_args()
    if arguments.jsonl and arguments.delimiter:
        parser.error("--jsonl and --delimiter exclude each other")
    return arguments


def load_tokenizer(name):
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise Failure("the package tokenizers is not installed: pip install tokenizers") from error
    if name.endswith(".json") and not os.path.exists(name):
        raise Failure(f"{name}: is not there")
    try:
        return Tokenizer.from_file(name) if os.path.exists(name) else Tokenizer.from_pretrained(name)
    except Exception as error:  # the package raises bare Exceptions
        raise Failure(f"{name}: is no tokenizer that can be loaded: {error}") from error


def json_documents(path, file, field):
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)[field]
        except (ValueError, KeyError, TypeError) as error:
            raise Failure(f"{path}: line {number}: expected a JSON object with \"{field}\": {error!r}") from error
        if not isinstance(text, str):
            raise Failure(f"{path}: line {number}: \"{field}\" is no text")
        yield text


def text_documents(file, delimiter):
    if delimiter is None:
        yield file.read()
        return
    lines = []
    for line in file:
        if line.rstrip("\n") == delimiter:
            yield "".join(lines)
            lines = []
        else:
            lines.append(line)
    if lines:
        yield "".join(lines)


def documents(arguments):
    for path in arguments.files:
        try:
            with open(sys.stdin.fileno() if path == "-" else path, encoding="utf-8", newline="\n", closefd=path != "-") as file:
                if arguments.jsonl:
                    yield from json_documents(path, file, arguments.jsonl)
                else:
                    yield from text_documents(file, arguments.delimiter)
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise Failure(f"{path}: is no UTF-8 text: {error.reason} at byte {error.start}") from error


def batches(items):
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def send_ids(pipe, tokenizer, arguments, end_of_text):
    # Special tokens are what the caller asks for, not what a tokenizer's template adds.
    for batch in batches(documents(arguments)):
        ids = array.array("I")
        if ids.itemsize != 4:
            raise Failure("this Python has no 4-byte array")
        for encoding in tokenizer.encode_batch(batch, add_special_tokens=False):
            if end_of_text is not None:
                ids.append(end_of_text)
            ids.extend(encoding.ids)
            ids.append(SEPARATOR)
        if sys.byteorder == "big":
            ids.byteswap()
        pipe.write(ids.tobytes())


def write_shard(arguments):
    tokenizer = load_tokenizer(arguments.tokenizer)
    end_of_text = None
    if arguments.end_of_text is not None:
        end_of_text = tokenizer.token_to_id(arguments.end_of_text)
        if end_of_text is None:
            raise Failure(f"--end-of-text {arguments.end_of_text}: the tokenizer has no such token")
    path = os.path.abspath(arguments.tokenizer)
    name = arguments.name or os.path.basename(os.path.dirname(path) if os.path.basename(path) == "tokenizer.json" else path)
    command = [arguments.flamia, "data", "write", "--out", arguments.out, "--tokenizer", name]
    # Ids of added tokens may lie beyond the number of tokens.
    command += ["--vocabulary", str(max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1)]
    if end_of_text is not None:
        command += ["--end-of-text", str(end_of_text)]
    try:
        writer = subprocess.Popen(command, stdin=subprocess.PIPE)
    except OSError as error:
        raise Failure(f"{arguments.flamia}: {error.strerror}; build it with make, or name it with --flamia") from error
    try:
        send_ids(writer.stdin, tokenizer, arguments, end_of_text)
        writer.stdin.close()
    except BrokenPipeError:
        pass  # the writer has said why it stopped
    except BaseException:
        # An input that ends within an id is refused by the writer: half a data set never becomes a shard.
        try:
            writer.stdin.write(b"\0")
            writer.stdin.close()
        except OSError:
            writer.kill()
        writer.wait()
        raise
    return writer.wait()


def main():
    try:
        return write_shard(parse_arguments())
    except Failure as failure:
        print(f"tokenize.py: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 1


if __name__ == "__main__":
    sys.exit(main())
