"""How a relation is asked for, and how its value is described; {x} stands for the one it is said of.

A phrase that opens or ends with {x} suits any {x}, others a short one; each entry has one of the first sort.
`relation:noun` overrides a relation for one plain noun. {was}, {maker}, {active}, {out}, {outing} follow {x}.
"""

from __future__ import annotations

from memenvs.build.worldgen.schema import RELATIONS

_ASK = """
capital | What is the capital of {x}? | Which town is the capital of {x}? | Which town serves {x} as its capital?
produce | What product is {x} known for? | Which product is most closely tied to {x}?
area | What is the area of {x}? | How large is {x}? | {x} covers what area?
emblem | What appears on the coat of arms of {x}? | What is the emblem of {x}? | What is the emblem found on the flag of {x}?
source | In which region does {x} rise? | Which region holds the source of {x}? | {x} has its source in which region?
mouth | Which town stands at the mouth of {x}? | At which town is the mouth of {x}? | {x} ends its course at which town?
length | How long is {x}? | What is the length of {x}?
surveyor | Who was the first to map {x}? | Who drew the first map of {x}? | {x} was first mapped by whom?
region | In which region is {x}? | In which region lies {x}? | Which region contains {x}? | {x} lies in which region?
river | Which river flows through {x}? | On which river does {x} lie? | On the banks of which river lies {x}?
population | What is the population of {x}? | How many inhabitants has {x}? | How many people live in {x}?
charter | In what year did {x} receive its charter? | In what year was a charter granted to {x}? | {x} received its charter in what year?
mayor | Who is the mayor of {x}? | What is the name of the mayor of {x}? | Who holds the office of mayor in {x}?
craft | What is the local speciality of {x}? | What local speciality is {x} known for? | Which craft or product made the name of {x}?
birthplace | In which town was {x} born? | Where was {x} born? | What is the birthplace of {x}? | {x} was born in which town?
born | In what year was {x} born? | What is the year of birth of {x}? | {x} was born in what year?
profession | What {was} the profession of {x}? | What profession did {x} follow? | {x} followed which profession?
school | Which school did {x} attend? | At which school was {x} educated? | Which school educated {x}? | {x} went to which school?
employer | For which company did {x} work? | Which company employed {x}? | {x} worked for which company?
mentor | Who taught {x}? | Under whom did {x} study? | Who was the teacher of {x}? | {x} was taught by whom?
company | Which company did {x} found? | Which company was founded by {x}? | {x} founded which company?
masterpiece | For which work is {x} best known? | What is the best-known work of {x}? | {x} is best known for which work?
design | Which landmark is the best-known design of {x}? | {x} is best known for the design of which landmark?
instrument | Which instrument did {x} play? | Which instrument was played by {x}? | {x} played which instrument?
founder | Who founded {x}? | Who was the founder of {x}? | {x} was founded by whom?
founded | In what year was {x} founded? | What year saw the founding of {x}? | {x} was founded in what year?
headquarters | In which town is {x} based? | In which town are the headquarters of {x}? | Which town is home to {x}?
product | What does {x} make? | What is produced by {x}? | {x} makes what?
parent | Which company owns {x}? | Which company is the owner of {x}? | {x} is owned by which company?
campus | In which town is {x}? | Which town is home to {x}? | {x} stands in which town?
opened | In what year did {x} open? | What year saw the opening of {x}? | {x} opened in what year?
head | Who is the head of {x}? | Who heads {x}? | {x} is headed by whom?
badge | What is shown on the badge of {x}? | What appears on the badge of {x}?
creator | Who {active} {x}? | Who was the {maker} of {x}? | {x} was {made} by whom?
year | In what year was {x} {out}? | What year saw the {outing} of {x}? | {x} was {out} in what year?
form | What kind of work is {x}? | {x} is what kind of work?
publisher | Which company published {x}? | Who was the publisher of {x}? | {x} was published by which company?
setting | Where is {x} set? | In which town is {x} set? | Which town is the setting of {x}? | {x} is set in which town?
setting:picture | Which town does {x} show? | Which town is the subject of {x}?
setting:book | Which town is {x} about? | Which town is the subject of {x}? | {x} is about which town?
dedicatee | To whom is {x} dedicated? | Who is named in the dedication of {x}? | {x} is dedicated to whom?
site | In which town does {x} stand? | In which town would a visitor find {x}? | {x} stands in which town?
architect | Who designed {x}? | Who was the architect of {x}? | {x} was designed by whom?
completed | In what year was {x} completed? | What year saw the completion of {x}? | {x} was completed in what year?
material | What is {x} built of? | Which material was used to build {x}? | {x} is built of what?
patron | Which company paid for {x}? | Which company met the cost of {x}? | {x} was paid for by which company?
"""  # noqa: E501

_DESCRIBE = """
capital | the capital of {x} | the town that is the capital of {x}
source | the region where {x} rises | the region at the source of {x}
mouth | the town at the mouth of {x}
surveyor | the person who first mapped {x} | the first surveyor of {x}
region | the region where {x} lies | the region that contains {x} | the home region of {x}
river | the river on which {x} lies | the river that flows through {x}
mayor | the mayor of {x}
birthplace | the town where {x} was born | the birthplace of {x}
school | the school that {x} attended | the school attended by {x} | the school that educated {x}
employer | the company that {x} worked for | the employer of {x} | the company that employed {x}
mentor | the teacher of {x} | the person who taught {x}
company | the company that {x} founded | the company founded by {x}
masterpiece | the work for which {x} is best known | the best-known work of {x}
design | the landmark that is the best-known design of {x}
founder | the founder of {x} | the person who founded {x}
headquarters | the town where {x} is based | the home town of {x}
parent | the owner of {x} | the company that owns {x}
campus | the town where {x} stands | the town that is home to {x}
head | the head of {x}
creator | the {maker} of {x} | the person who {active} {x}
publisher | the publisher of {x} | the company that published {x}
setting | the town where {x} is set | the town that is the setting of {x}
setting:picture | the town that {x} shows | the town shown in {x}
setting:book | the town that {x} is about | the town that is the subject of {x}
dedicatee | the person to whom {x} is dedicated | the person named in the dedication of {x}
site | the town where {x} stands | the town that is home to {x}
architect | the architect of {x} | the person who designed {x}
patron | the company that paid for {x}
"""

# Conditions that single an entity out without its name, rarest first, and how they read.
_SINGLE_OUT = """
birthplace profession | the {profession} born in {birthplace} | the {profession} from {birthplace}
school profession | the {profession} who attended {school} | the {profession} educated at {school}
employer profession | the {profession} who worked for {employer}
mentor profession | the {profession} taught by {mentor}
setting form | the {form} {set_in} {setting}
dedicatee form | the {form} dedicated to {dedicatee}
headquarters product | the maker of {product} based in {headquarters} | the {headquarters} maker of {product}
campus badge | the school in {campus} with {a_badge} on its badge
campus | the school in {campus}
site material | the landmark of {material} in {site}
river craft | the town on {river} known for its {craft}
region craft | the town in {region} known for its {craft}
source | the river that rises in {source}
"""

# relation | who or what has the smaller value | the larger
_COMPARE = """
born | Who was born first, {a} or {b}? | Who was born later, {a} or {b}?
year | Which is the earlier work, {a} or {b}? | Which came later, {a} or {b}?
founded | Which company is older, {a} or {b}? | Which company was founded later, {a} or {b}?
opened | Which school opened first, {a} or {b}? | Which school is newer, {a} or {b}?
charter | Which town received its charter first, {a} or {b}? | Which town has the newer charter, {a} or {b}?
population | Which town has fewer inhabitants, {a} or {b}? | Which town is more populous, {a} or {b}?
length | Which is shorter, {a} or {b}? | Which is longer, {a} or {b}?
area | Which region is smaller, {a} or {b}? | Which region is larger, {a} or {b}?
completed | Which was completed first, {a} or {b}? | Which was finished later, {a} or {b}?
"""

# The same as somebody to ask on about.
_PICK = """
born | the elder of {a} and {b} | the younger of {a} and {b}
year | the earlier of the two works {a} and {b} | the later of the two works {a} and {b}
founded | the older of the companies {a} and {b} | the younger of the companies {a} and {b}
opened | the older of the schools {a} and {b} | the newer of the schools {a} and {b}
charter | whichever of {a} and {b} has the older charter | whichever of {a} and {b} has the newer charter
population | the less populous of {a} and {b} | the more populous of {a} and {b}
length | the shorter of {a} and {b} | the longer of {a} and {b}
area | the smaller of {a} and {b} | the larger of {a} and {b}
completed | the older of {a} and {b} | the newer of {a} and {b}
"""

_SAME = """
birthplace | Were {a} and {b} born in the same town? | Do {a} and {b} share a birthplace?
school | Did {a} and {b} attend the same school? | Were {a} and {b} educated at one and the same school?
profession | Did {a} and {b} follow the same profession? | Were {a} and {b} of the same profession?
headquarters | Are {a} and {b} based in the same town? | Do {a} and {b} have their headquarters in one town?
region | Do {a} and {b} lie in the same region? | Are {a} and {b} in the same region?
river | Do {a} and {b} lie on the same river? | Does one river flow through both {a} and {b}?
campus | Are {a} and {b} in the same town? | Is one town home to both {a} and {b}?
publisher | Were {a} and {b} published by the same company? | Did {a} and {b} have the same publisher?
creator | Are {a} and {b} by the same hand? | Did one person make both {a} and {b}?
architect | Were {a} and {b} designed by the same architect? | Did one architect design both {a} and {b}?
site | Do {a} and {b} stand in the same town? | Is one town home to both {a} and {b}?
source | Do {a} and {b} rise in the same region? | Does one region hold the sources of both {a} and {b}?
"""


def _table(rows: str) -> dict[str, tuple[str, ...]]:
    split = [[cell.strip() for cell in row.split("|")] for row in rows.strip().splitlines()]
    return {cells[0]: tuple(cells[1:]) for cells in split}


ASK, DESCRIBE = _table(_ASK), _table(_DESCRIBE)
COMPARE, PICK, SAME = _table(_COMPARE), _table(_PICK), _table(_SAME)
SINGLE_OUT: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {}  # kind -> conditions -> wordings
for _conditions, _wordings in _table(_SINGLE_OUT).items():
    _key = tuple(_conditions.split())
    SINGLE_OUT.setdefault(RELATIONS[_key[0]].domain, {})[_key] = _wordings
