"""Names of cities, for examples and tests."""

_NAMES = """
Abidjan Accra Adelaide Ahmedabad Aleppo Algiers Almaty Amman Amsterdam Ankara Antalya Antananarivo Asmara
Astana Athens Atlanta Auckland Baghdad Baku Bamako Bandung Bangalore Bangkok Barcelona Barranquilla Basra
Beijing Beirut Belgrade Benghazi Berlin Bern Bilbao Birmingham Bogota Bordeaux Boston Brasilia Bratislava
Brazzaville Brisbane Bristol Brussels Bucharest Budapest Bulawayo Bursa Busan Cairo Calgary Canberra Caracas
Cardiff Casablanca Changchun Chengdu Chennai Chicago Chittagong Cologne Colombo Conakry Copenhagen Cordoba
Curitiba Daegu Dakar Dallas Damascus Darwin Delhi Denver Detroit Dhaka Djibouti Dodoma Donetsk Douala Dresden
Dublin Durban Dushanbe Edinburgh Faisalabad Fortaleza Frankfurt Freetown Fukuoka Gaborone Gdansk Geneva Genoa
Glasgow Gothenburg Guadalajara Guatemala Guayaquil Hamburg Hanoi Harare Harbin Havana Helsinki Hiroshima
Houston Hyderabad Islamabad Istanbul Izmir Jaipur Jakarta Jeddah Jerusalem Johannesburg Kabul Kampala Kanpur
Karachi Kathmandu Kazan Khartoum Kigali Kingston Kinshasa Kolkata Krakow Kumasi Kyoto Lagos Lahore Leeds
Leipzig Libreville Lilongwe Lima Lisbon Liverpool Ljubljana London Luanda Lubumbashi Lucknow Lusaka Lyon
Macau Madrid Malaga Managua Manchester Manila Maputo Maracaibo Marrakesh Marseille Mashhad Medan Medellin
Medina Melbourne Memphis Miami Milan Minsk Mogadishu Mombasa Monrovia Monterrey Montevideo Montreal Mosul
Multan Mumbai Munich Muscat Nagoya Nagpur Nairobi Nanjing Naples Nassau Niamey Nicosia Nottingham Nouakchott
Novosibirsk Odessa Omsk Osaka Oslo Ottawa Ouagadougou Palermo Panama Paris Perth Peshawar Philadelphia Phoenix
Podgorica Porto Prague Pretoria Pune Pyongyang Quito Rabat Rawalpindi Recife Reykjavik Riga Riyadh Rome
Rosario Rotterdam Salvador Samara Samarkand Santiago Sapporo Sarajevo Seattle Seoul Seville Shanghai Sheffield
Shenyang Shenzhen Shiraz Singapore Skopje Sofia Stockholm Stuttgart Surabaya Surat Suzhou Sydney Tabriz Taipei
Tallinn Tampere Tangier Tashkent Tbilisi Tehran Tianjin Tijuana Tirana Tokyo Toronto Toulouse Tripoli Tunis
Turin Utrecht Valencia Valparaiso Vancouver Venice Vienna Vientiane Vilnius Vladivostok Warsaw Wellington
Windhoek Winnipeg Wroclaw Wuhan Yangon Yaounde Yekaterinburg Yerevan Yokohama Zagreb Zanzibar Zaragoza Zurich
"""
CITIES = tuple(_NAMES.split())
