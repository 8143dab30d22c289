// Long labels, shortened so that they still differ.

/** At most so many characters. Of a line the folders go first, then the middle of the function; of others the middle. */
export function shortened(text: string, most: number): string {
  if (text.length <= most) return text;
  const line = /^(?:.*\/)?([^/]*:\d+)( \(.*\))$/.exec(text);
  if (!line) return middle(text, most, Math.floor(most / 3));
  const [, place, rest] = line as unknown as [string, string, string];
  const room = most - place.length - rest.length;
  if (room >= 1) return `…${text.slice(text.length - most + 1)}`;
  return middle(`${place}${rest}`, most, Math.min(place.length + 2, Math.floor((2 * most) / 3)));
}

/** With `front` characters of the beginning, and the end. */
function middle(text: string, most: number, front: number): string {
  return text.length <= most ? text : `${text.slice(0, front)}…${text.slice(text.length - (most - front - 1))}`;
}

/** All labels shortened; those that would look alike show the place where they differ. */
export function allShortened(labels: string[], most: number): string[] {
  const short = labels.map((label) => shortened(label, most));
  return short.map((text, at) => {
    const alike = labels.filter((other, number) => number !== at && short[number] === text && other !== labels[at]);
    if (alike.length === 0) return text;
    const differs = Math.max(...alike.map((other) => common(labels[at]!, other)));
    const from = Math.max(0, differs - Math.floor(most / 2));
    const part = labels[at]!.slice(from, from + most - 2);
    return `${from > 0 ? "…" : ""}${part}${from + part.length < labels[at]!.length ? "…" : ""}`;
  });
}

function common(a: string, b: string): number {
  let at = 0;
  while (at < a.length && a[at] === b[at]) at++;
  return at;
}
