#!/bin/bash
# A lambda in bash: duly worker --exec examples/programs/checksum.sh --lambda text.checksum
# Reads one task a line from stdin, writes one message a line to stdout. Its log is stderr. Needs jq.
set -u

echo '{"type":"ready"}'
while IFS= read -r line; do
  [[ $(jq -r .type <<<"$line") == task ]] || continue  # a cancel: this is over sooner than it could stop
  id=$(jq -r .id <<<"$line")
  echo "task $id, attempt $(jq .attempt <<<"$line")" >&2
  if text=$(jq -er '.payload.text | strings' <<<"$line"); then
    sum=$(printf %s "$text" | sha256sum | cut -d' ' -f1)
    jq -nc --arg id "$id" --arg sum "$sum" '{type: "success", id: $id, result: {sha256: $sum}}'
  else
    jq -nc --arg id "$id" '{type: "fatal", id: $id, message: "the payload has no text"}'
  fi
done
