# Prints the certificate files: those of the system, then *.crt and *.pem of every mounted ConfigMap.
sources() {
  for file in $CA_BUNDLE_FILE_PATHS; do
    if [ -f "$file" ]; then echo "$file"; fi
  done
  for directory in $CA_BUNDLE_MOUNT_PATHS; do
    for file in "$directory"/*.crt "$directory"/*.pem; do
      if [ -f "$file" ]; then echo "$file"; fi
    done
  done
}

# Writes all certificates into one file, which readers never see half written.
combine() {
  new="$CA_BUNDLE_OUTPUT.new"
  : > "$new"
  sources | while IFS= read -r file; do
    cat "$file" >> "$new"
    echo >> "$new"
  done
  chmod 0644 "$new"
  mv -f "$new" "$CA_BUNDLE_OUTPUT"
}
