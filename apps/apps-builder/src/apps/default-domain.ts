const cyrillic: Readonly<Record<string, string>> = {
  а: 'a',
  б: 'b',
  в: 'v',
  г: 'g',
  д: 'd',
  е: 'e',
  ё: 'e',
  ж: 'zh',
  з: 'z',
  и: 'i',
  й: 'y',
  к: 'k',
  л: 'l',
  м: 'm',
  н: 'n',
  о: 'o',
  п: 'p',
  р: 'r',
  с: 's',
  т: 't',
  у: 'u',
  ф: 'f',
  х: 'kh',
  ц: 'ts',
  ч: 'ch',
  ш: 'sh',
  щ: 'shch',
  ъ: '',
  ы: 'y',
  ь: '',
  э: 'e',
  ю: 'yu',
  я: 'ya',
  і: 'i',
  ї: 'yi',
  є: 'ye',
  ґ: 'g',
  ў: 'u',
};

/** Names under the apps' suffix that could be taken for the platform itself; no app gets one of them bare. */
const reserved = new Set(
  (
    'www api app apps admin panel dashboard console account accounts auth login sso oauth billing pay payments static cdn ' +
    'assets mail smtp imap pop ftp ns ns1 ns2 ns3 dns edge gateway git hooks webhooks docs help support status blog ' +
    'internal local localhost nebo root system test example wpad autodiscover autoconfig _acme-challenge'
  ).split(' '),
);

/**
 * The label that an app's name makes: a–z, 0–9 and hyphen, at most 40, Cyrillic transliterated (interfaces.md, 10). A name
 * without any such character makes `app`.
 */
export function labelOf(name: string): string {
  const latin = [...name.toLowerCase().normalize('NFC')].map((letter) => cyrillic[letter] ?? letter).join('');
  // Accents fall off: "café" is cafe.
  const plain = latin
    .normalize('NFKD')
    .replace(/[\u0300-\u036f]/g, '')
    .toLowerCase();
  const label = plain
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, 40)
    .replace(/^-+|-+$/g, '');
  return label || 'app';
}

/** Labels to try in turn: the name's own unless reserved, then with four characters of the id, then with more of them. */
export function labelCandidates(name: string, id: string): string[] {
  const label = labelOf(name);
  const hex = id.replaceAll('-', '');
  const bare = reserved.has(label) ? [] : [label];
  return [
    ...bare,
    `${label.slice(0, 40)}-${hex.slice(0, 4)}`,
    `${label.slice(0, 40)}-${hex.slice(0, 12)}`,
    `app-${hex}`,
  ];
}
