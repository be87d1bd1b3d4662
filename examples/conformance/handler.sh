#!/bin/bash
# The lambdas of the conformance suite as a program; needs jq. One lambda a --lambda:
#   duly conformance -- duly worker --exec examples/conformance/handler.sh --lambda conformance.echo --lambda ...
set -u

end() { jq -nc --arg type "$1" --arg id "$id" "${@:3}" "{type: \$type, id: \$id} + $2"; }

tick() {
  local file fence stubborn
  file=$(jq -r .payload.file <<<"$line") fence=$(jq .fence <<<"$line") stubborn=$(jq .payload.stubborn <<<"$line")
  end progress '{fraction: 0.5}'
  end checkpoint '{value: {at: 1}}'
  until [[ -e $file.stop ]]; do
    echo "$$ $fence" >>"$file"
    # a cancel is the only line that can come now; read waits for it as long as a tick takes
    if IFS= read -r -t 0.05 _ && [[ $stubborn == false ]]; then
      end cancelled '{}'
      return
    fi
  done
  end success '{}'
}

echo '{"type":"ready"}'
while IFS= read -r line; do
  id=$(jq -r .id <<<"$line")
  case $(jq -r 'if .type == "task" then .lambda else .type end' <<<"$line") in
    conformance.echo) jq -c '{type: "success", id, result: .payload}' <<<"$line" ;;
    conformance.bytes) jq -c '{type: "success", id, result_base64: .payload_base64}' <<<"$line" ;;
    conformance.context) jq -c '{type: "success", id, result: {attempt, fence, checkpoint}}' <<<"$line" ;;
    conformance.end)
      case $(jq -r .payload.outcome <<<"$line") in
        snooze) end snooze '{delay: 5}' ;;
        fatal) end fatal '{message: "as asked"}' ;;
        *) end retry '{message: "as asked"}' ;;
      esac
      ;;
    conformance.tick) tick ;;
    conformance.crash) kill -9 $$ ;;
  esac
done
