// The commands that do what a click does. Words that the shell would take apart are quoted.

export function quote(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** `forebay` and its words; options that are absent are left out, `true` is a flag. */
export function command(words: readonly string[], options: Readonly<Record<string, string | number | boolean | readonly string[] | null | undefined>> = {}): string {
  const parts = ["forebay", ...words.map(quote)];
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false || value === "") continue;
    if (value === true) parts.push(`--${name}`);
    else if (Array.isArray(value)) {
      if (value.length > 0) parts.push(`--${name}`, ...(value as readonly string[]).map(quote));
    } else parts.push(`--${name}`, quote(String(value)));
  }
  return parts.join(" ");
}
