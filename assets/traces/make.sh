#!/bin/sh
# Makes the traces that are shipped here, on the CPU with smollm2-135m. The prompt is this repository's own prose; run it
# from the repository's root with a `kvarto` on the PATH, or KVARTO=path/to/kvarto.
set -eu
kvarto=${KVARTO:-kvarto}
here=assets/traces
prompt=$(mktemp)
trap 'rm -f "$prompt"' EXIT
cat ARCHITECTURE.md CONTRIBUTING.md README.md | head -c 14600 > "$prompt"
# Pages are recent for 1,024 tokens, so that conversions to fewer bits go on through the run; attention by page every 16th step.
"$kvarto" generate --backend cpu --temperature 0 --prompt-file "$prompt" --max-tokens 192 \
    --profile minima-kv --set policy.recent_tokens=1024 --set policy.young_share=1 --timing kernels \
    --trace-mass every=16 --trace-pages sample=400 --trace "$here/minima-kv.kvtr" > /dev/null
"$kvarto" chat --backend cpu --temperature 0 --max-tokens 60 --profile minima-kv --page-tokens 32 --exact-sink 32 \
    --exact-tail 32 --set policy.recent_tokens=96 --system "You are a helpful librarian who answers in one or two sentences." \
    --trace-mass every=8 --trace "$here/chat-fork.kvtr" > /dev/null <<'CHAT'
What is a key-value cache?
Why would one keep old entries with fewer bits?
/fork
Tell me a short story about a lighthouse.
/switch 1
Name three things that a library lends besides books.
/switch 2
And how does the story end?
/quit
CHAT
for name in minima-kv chat-fork; do
    "$kvarto" trace verify "$here/$name.kvtr"
done
ls -l "$here"
