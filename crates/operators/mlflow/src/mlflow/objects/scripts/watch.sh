
checksum() {
  sources | while IFS= read -r file; do cat "$file"; done | sha256sum
}

trap 'exit 0' TERM INT
known=""
while true; do
  current="$(checksum)"
  if [ "$current" != "$known" ]; then
    combine
    known="$current"
  fi
  sleep "$CA_BUNDLE_WATCH_INTERVAL" &
  wait $!
done
